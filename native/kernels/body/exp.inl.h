// e^x by x = n ln 2 + r, |r| <= ln 2 / 2, and the Taylor polynomial of e^r to r^7: the remainder
// 0.3466^8 / 8! = 5.2e-9 is a twentieth of half a unit in the last place, so rounding in Horner's
// scheme decides the error (0.94 ulp, over every float of the range). Only add, multiply, fused
// multiply-add and integer adds: the same bits everywhere, which no libm promises.
#pragma once
#include "base/numeric.h"

namespace inferno {

constexpr float kLog2E = 0x1.715476p+0f;
// ln 2 in two parts; the first has 15 trailing zero bits, so n * kLn2High is exact.
constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
// 1.5 * 2^23: adding it leaves round(x) in the low bits of the sum, ties to even.
constexpr float kRoundMagic = 0x1.8p23f;
constexpr float kExpLowest = -87.0f;  // e^-87 = 1.6e-38 is the last above 2^-126; below, the answer is 0
constexpr float kExpHighest = 88.0f;  // e^88 = 1.65e38 is the last whole number below overflow; above, that

template <class Isa>
INFERNO_INLINE typename Isa::F32 exp16(typename Isa::F32 x) {
    using V = typename Isa::F32;
    const V lowest = Isa::splat(kExpLowest);
    const V clamped = Isa::min(Isa::max(x, lowest), Isa::splat(kExpHighest));
    const V shifted = Isa::fma(clamped, Isa::splat(kLog2E), Isa::splat(kRoundMagic));
    const V n = Isa::sub(shifted, Isa::splat(kRoundMagic));
    const V r = Isa::fma(n, Isa::splat(-kLn2Low), Isa::fma(n, Isa::splat(-kLn2High), clamped));
    V p = Isa::splat(1.0f / 5040);
    p = Isa::fma(p, r, Isa::splat(1.0f / 720));
    p = Isa::fma(p, r, Isa::splat(1.0f / 120));
    p = Isa::fma(p, r, Isa::splat(1.0f / 24));
    p = Isa::fma(p, r, Isa::splat(1.0f / 6));
    p = Isa::fma(p, r, Isa::splat(0.5f));
    p = Isa::fma(p, r, Isa::splat(1.0f));
    p = Isa::fma(p, r, Isa::splat(1.0f));
    return Isa::where_ge(Isa::scale_by_low_bits(p, shifted), x, lowest);
}

template <class Isa>
INFERNO_INLINE float exp1(float x) {
    return Isa::first(exp16<Isa>(Isa::splat(x)));
}

template <class Isa>
void exp_row(const float* x, float* out, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) Isa::store(out + i, exp16<Isa>(Isa::load(x + i)));
    for (; i < n; ++i) out[i] = exp1<Isa>(x[i]);
}

}  // namespace inferno
