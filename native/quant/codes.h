// Products of a block of 32 columns, in integers: exact, so in whatever order an instruction set likes.
//
// A format gives its codes four columns at a time, 16 rows side by side: codes<Isa>(tile block, m, low, high)
// are columns 4m .. 4m + 3 and 16 + 4m .. 19 + 4m. These groups are the outer loop, so that each broadcast
// of four activations serves every row.
#pragma once
#include "quant/activations.h"

namespace inferno {

// Ask for part `part` of `parts` of what a row tile holds a little ahead of block `w`, line by line: the hardware
// prefetcher alone stops at each 4 KB page, and several tokens' arithmetic leaves it too far behind (30.6 against
// 33.4 GB/s at 2.3 KB; docs/lab-notebook.md).
constexpr int kPrefetchAhead = 2304;
template <class Isa, class TileBlock>
INFERNO_INLINE void prefetch_part(const TileBlock* w, int part, int parts) {
    const char* ahead = (const char*)w + kPrefetchAhead;
    constexpr int kLines = (int)(sizeof(TileBlock) + 63) / 64;
    for (int line = kLines * part / parts; line < kLines * (part + 1) / parts; ++line) Isa::prefetch(ahead + 64 * line);
}

// The whole part of `value`, within 0 .. largest; 0 for NaN.
INFERNO_INLINE uint8_t clamped_code(float value, int largest) {
    return value >= (float)largest ? (uint8_t)largest : value >= 0.0f ? (uint8_t)value : 0;
}

// total[r][t] = sum of (code - Format::kOffset) * q, a lane a row; codes are 0 .. Format::kLargestCode.
//
// An instruction set with narrow sums widens them every Isa::code_run(largest code) groups. One that can
// begin its sums anywhere begins them at the offset's share; the others add it when they widen.
template <class Isa, class Format, int T, int R>
INFERNO_INLINE void dot_unsigned_block(const typename Format::TileBlock* const (&w)[R], const Q8Block<T>& x,
                                       typename Isa::I32 (&total)[R][T]) {
    constexpr int kRun = Isa::code_run(Format::kLargestCode) / 2;
    static_assert(kRun >= 1 && 4 % kRun == 0);
    const auto start = [&](int m, int t) {
        if (m >= kRun) return 0;
        // bias is -8 * sum(q).
        return Format::kOffset % 8 ? (x.bias[t] >> 3) * Format::kOffset : x.bias[t] * (Format::kOffset / 8);
    };
    typename Isa::CodeSum sum[R][T];
#pragma GCC unroll 4
    for (int m = 0; m < 4; ++m) {
        typename Isa::Bytes low[R], high[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) Format::template codes<Isa>(*w[r], m, low[r], high[r]);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto first = Isa::broadcast(&x.q[t][4 * m]);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                if (m % kRun == 0) sum[r][t] = Isa::code_sum(start(m, t));
                Isa::dot_codes(sum[r][t], low[r], first);
            }
            const auto second = Isa::broadcast(&x.q[t][16 + 4 * m]);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) Isa::dot_codes(sum[r][t], high[r], second);
        }
        if (m % kRun != kRun - 1) continue;
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const auto run = Isa::code_total(sum[r][t], start(m, t));
                total[r][t] = m < kRun ? run : Isa::add(total[r][t], run);
            }
    }
}

// total[r][t] = sum of code * q, for codes that are int8.
template <class Isa, class Format, int T, int R>
INFERNO_INLINE void dot_signed_block(const typename Format::TileBlock* const (&w)[R], const Q8Block<T>& x,
                                     typename Isa::I32 (&total)[R][T]) {
    typename Isa::ByteSum sum[R][T];
#pragma GCC unroll 4
    for (int m = 0; m < 4; ++m) {
        typename Isa::SignedBytes low[R], high[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            typename Isa::Bytes first, second;
            Format::template codes<Isa>(*w[r], m, first, second);
            low[r] = Isa::signed_bytes(first);
            high[r] = Isa::signed_bytes(second);
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto first = Isa::broadcast(&x.q[t][4 * m]);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                if (m == 0) sum[r][t] = Isa::byte_sum(x.bias[t]);
                Isa::dot_bytes(sum[r][t], low[r], first);
            }
            const auto second = Isa::broadcast(&x.q[t][16 + 4 * m]);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) Isa::dot_bytes(sum[r][t], high[r], second);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) total[r][t] = Isa::byte_total(sum[r][t]);
}

// acc[r][t] += scale_w * scale_x * total: one rounding for the product of the scales, one for the fused
// multiply-add. `scale(r)` is the scale of 16 rows.
template <class Isa, int T, int R, class Scale>
INFERNO_INLINE void add_scaled(const typename Isa::I32 (&total)[R][T], const Q8Block<T>& x, float (*acc)[T][kTileRows],
                               Scale scale) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        const auto s = scale(r);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto product = Isa::mul(s, Isa::splat(x.scale[t]));
            Isa::store(acc[r][t], Isa::fma(Isa::to_float(total[r][t]), product, Isa::load(acc[r][t])));
        }
    }
}

// The same, then acc[r][t] += minimum * (scale_x * sum(q)).
template <class Isa, int T, int R, class Scale, class Minimum>
INFERNO_INLINE void add_scaled_and_minimum(const typename Isa::I32 (&total)[R][T], const Q8Block<T>& x,
                                           float (*acc)[T][kTileRows], Scale scale, Minimum minimum) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        const auto s = scale(r), m = minimum(r);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto product = Isa::mul(s, Isa::splat(x.scale[t]));
            const auto a = Isa::fma(Isa::to_float(total[r][t]), product, Isa::load(acc[r][t]));
            Isa::store(acc[r][t], Isa::fma(m, Isa::splat(x.sum[t]), a));
        }
    }
}

}  // namespace inferno
