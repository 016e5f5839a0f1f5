#include "kernels/dispatch.h"

#include "base/check.h"
#include "base/cpu.h"

namespace inferno {
namespace {

struct Candidate {
    const char* name;
    bool CpuFeatures::* feature;  // null: runs everywhere
    const KernelTable& (*table)();

    bool runs_here() const { return !feature || cpu_features().*feature; }
};

// Best first.
constexpr Candidate kCandidates[] = {
#define X(isa) {#isa, &CpuFeatures::isa, kernels_##isa},
    INFERNO_ISAS(X)
#undef X
        {"scalar", nullptr, kernels_scalar},
};

}  // namespace

std::vector<std::string> supported_isas() {
    std::vector<std::string> names;
    for (const auto& candidate : kCandidates)
        if (candidate.runs_here()) names.push_back(candidate.name);
    return names;
}

const KernelTable& choose_kernels(std::string_view isa) {
    std::string names;
    for (const auto& candidate : kCandidates) {
        if (!candidate.runs_here()) continue;
        if (isa.empty() || isa == candidate.name) return candidate.table();
        names += (names.empty() ? "" : ", ") + std::string(candidate.name);
    }
    throw Error("invalid-option",
                "Instruction set `" + std::string(isa) + "` cannot run on this CPU (it can run: " + names + ")",
                "leave `isa` and INFERNO_ISA unset to use the best");
}

}  // namespace inferno
