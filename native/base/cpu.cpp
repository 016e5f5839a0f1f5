#include "base/cpu.h"

#include "base/check.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace inferno {
namespace {

#if defined(INFERNO_HAS_AVX2)
bool has_avx2() {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    constexpr unsigned kFma = 1u << 12, kOsxsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
    if ((c & (kFma | kOsxsave | kAvx | kF16c)) != (kFma | kOsxsave | kAvx | kF16c)) return false;
    // XGETBV: does the operating system save the xmm (bit 1) and ymm (bit 2) registers?
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6u) != 6u) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (b & (1u << 5)) != 0;
}
#endif

struct Candidate {
    const char* name;
    bool (*runs_here)();
    const KernelTable& (*table)();
};

// Best first.
constexpr Candidate kCandidates[] = {
#if defined(INFERNO_HAS_AVX2)
    {"avx2", has_avx2, kernels_avx2},
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
