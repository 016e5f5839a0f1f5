// Numbers and their storage formats. Included by the per-ISA sources, so it may pull in nothing but
// freestanding headers, and every function is forced inline: a shared out-of-line copy compiled with
// one ISA's flags could be the one the linker keeps for all.
#pragma once
#include <cstdint>
#include <cstring>

// GCC or Clang, on Windows too (CMakeLists.txt).
#define INFERNO_INLINE static inline __attribute__((always_inline))
#define INFERNO_INLINE_LAMBDA __attribute__((always_inline))
#define INFERNO_RESTRICT __restrict__
// What `pointer` points to may be another after this, as far as the compiler knows.
#define INFERNO_MAY_CHANGE(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

namespace inferno {

template <int kValue>
struct Constant {
    constexpr operator int() const { return kValue; }
};

// body(Constant<0>), body(Constant<1>), …: a loop whose indices are constants from the start, so that arrays of
// registers are registers to all of the compiler's passes.
template <int kCount, int kFirst = 0>
INFERNO_INLINE void unrolled(const auto& body) {
    if constexpr (kCount > 0) {
        body(Constant<kFirst>{});
        unrolled<kCount - 1, kFirst + 1>(body);
    }
}

using f16 = uint16_t;   // IEEE binary16, as bits
using bf16 = uint16_t;  // the upper half of an IEEE binary32, as bits

INFERNO_INLINE uint32_t bits_of(float x) {
    uint32_t u;
    std::memcpy(&u, &x, sizeof u);
    return u;
}

INFERNO_INLINE float float_of(uint32_t u) {
    float x;
    std::memcpy(&x, &u, sizeof x);
    return x;
}

// Exact. A subnormal half is scaled by 2^-24, its unit in the last place.
INFERNO_INLINE float f16_to_f32(f16 h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1Fu, mantissa = h & 0x3FFu;
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return float_of(bits_of(magnitude) | sign);
    }
    if (exponent == 31) return float_of(sign | 0x7F800000u | (mantissa << 13));
    return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));  // 112 = 127 - 15, the biases
}

// Round to nearest, ties to even; overflow to infinity; a NaN stays a NaN.
INFERNO_INLINE f16 f32_to_f16(float x) {
    const uint32_t u = bits_of(x);
    const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (f16)(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
    if (magnitude >= 0x477FF000u) return (f16)(sign | 0x7C00u);  // 65520 and more round to infinity
    if (magnitude < 0x38800000u) {                               // below 2^-14: a subnormal half, in units of 2^-24
        // Adding 0.5 moves the unit of a float's last place to 2^-24: the sum's low bits are the answer.
        const uint32_t sum = bits_of(float_of(magnitude) + 0.5f);
        return (f16)(sign | (sum - 0x3F000000u));
    }
    const uint32_t odd = (magnitude >> 13) & 1u;
    return (f16)(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

INFERNO_INLINE float bf16_to_f32(bf16 h) { return float_of((uint32_t)h << 16); }

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
INFERNO_INLINE bf16 f32_to_bf16(float x) {
    const uint32_t u = bits_of(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (bf16)((u >> 16) | 0x40u);
    return (bf16)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

// 2^(exponent - 128): half of an E8M0 scale, whose two smallest are subnormal.
INFERNO_INLINE float half_power_of_two(uint8_t exponent) {
    return float_of(exponent < 2 ? 0x00200000u << exponent : (uint32_t)(exponent - 1) << 23);
}

INFERNO_INLINE int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

INFERNO_INLINE int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace inferno
