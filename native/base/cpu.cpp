#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace inferno {
namespace {

bool has_all(uint64_t word, uint64_t bits) { return (word & bits) == bits; }
constexpr uint32_t bit(int i) { return uint32_t(1) << i; }

// HWCAP_ASIMD, HWCAP_ASIMDDP and HWCAP2_I8MM of Linux.
constexpr uint64_t kAsimd = 1u << 1, kDotProduct = 1u << 20, kInt8Matrices = 1u << 13;

}  // namespace

CpuFeatures features_of(const X86Words& words) {
    constexpr uint32_t kFma = bit(12), kOsxsave = bit(27), kAvx = bit(28), kF16c = bit(29);
    constexpr uint32_t kAvx2 = bit(5), kAvx512F = bit(16), kAvx512Bw = bit(30), kAvx512Vl = bit(31);
    constexpr uint32_t kAvx512Vnni = bit(11);  // of leaf 7's ecx
    constexpr uint32_t kAvxVnni = bit(4);      // of leaf 7.1's eax
    // Which registers are saved: xmm (1) and ymm (2); mask registers and the upper parts of zmm (5 to 7).
    constexpr uint32_t kYmm = bit(1) | bit(2), kZmm = kYmm | bit(5) | bit(6) | bit(7);
    CpuFeatures features;
    features.avx2 = words.highest_leaf >= 7 && has_all(words.leaf1_ecx, kFma | kOsxsave | kAvx | kF16c) &&
                    has_all(words.saved_registers, kYmm) && has_all(words.leaf7_ebx, kAvx2);
    features.avx_vnni = features.avx2 && has_all(words.leaf7_1_eax, kAvxVnni);
    features.avx512_vnni = features.avx2 && has_all(words.saved_registers, kZmm) &&
                           has_all(words.leaf7_ebx, kAvx512F | kAvx512Bw | kAvx512Vl) &&
                           has_all(words.leaf7_ecx, kAvx512Vnni);
    return features;
}

CpuFeatures features_of(const ArmWords& words) {
    CpuFeatures features;
    features.neon = has_all(words.hwcap, kAsimd);
    features.neon_dotprod = features.neon && has_all(words.hwcap, kDotProduct);
    features.neon_i8mm = features.neon_dotprod && has_all(words.hwcap2, kInt8Matrices);
    return features;
}

#if defined(__x86_64__)
static CpuFeatures ask() {
    X86Words words{};
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return {};
    words.highest_leaf = __get_cpuid_max(0, nullptr);
    words.leaf1_ecx = c;
    if (c & bit(27)) {  // else XGETBV does not exist
        unsigned low, high;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        words.saved_registers = low;
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        words.leaf7_ebx = b, words.leaf7_ecx = c;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) words.leaf7_1_eax = a;
    }
    return features_of(words);
}
#elif defined(__aarch64__) && defined(__linux__)
static CpuFeatures ask() { return features_of(ArmWords{getauxval(AT_HWCAP), getauxval(AT_HWCAP2)}); }
#elif defined(__aarch64__) && defined(__APPLE__)
static CpuFeatures ask() {
    const auto has = [](const char* name) {
        int value = 0;
        size_t size = sizeof value;
        return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
    };
    return features_of(ArmWords{kAsimd | (has("hw.optional.arm.FEAT_DotProd") ? kDotProduct : 0),
                                has("hw.optional.arm.FEAT_I8MM") ? kInt8Matrices : 0});
}
#else
static CpuFeatures ask() { return {}; }
#endif

const CpuFeatures& cpu_features() {
    static const CpuFeatures features = ask();
    return features;
}

}  // namespace inferno
