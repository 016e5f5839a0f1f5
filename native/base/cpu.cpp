#include "base/cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace inferno {

#if defined(__x86_64__) && defined(__GNUC__)
bool cpu_has_avx2() {
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

bool cpu_has_avx512_vnni() {
    if (!cpu_has_avx2()) return false;
    // XGETBV: mask registers and the upper parts of the zmm registers (bits 5 to 7) are saved too.
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0xE6u) != 0xE6u) return false;
    unsigned a, b, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    constexpr unsigned kF = 1u << 16, kBw = 1u << 30, kVl = 1u << 31, kVnni = 1u << 11;
    return (b & (kF | kBw | kVl)) == (kF | kBw | kVl) && (c & kVnni) != 0;
}
#else
bool cpu_has_avx2() { return false; }
bool cpu_has_avx512_vnni() { return false; }
#endif

}  // namespace inferno
