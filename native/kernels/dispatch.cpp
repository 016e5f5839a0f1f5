#include "kernels/dispatch.h"

#include "base/check.h"
#include "base/cpu.h"

namespace inferno {
namespace {

struct Candidate {
    const char* name;
    bool (*runs_here)();
    const KernelTable& (*table)();
};

// Best first.
constexpr Candidate kCandidates[] = {
#if defined(INFERNO_HAS_AVX512_VNNI)
    {"avx512_vnni", cpu_has_avx512_vnni, kernels_avx512_vnni},
#endif
#if defined(INFERNO_HAS_AVX2)
    {"avx2", cpu_has_avx2, kernels_avx2},
#endif
    {"scalar", [] { return true; }, kernels_scalar},
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
