// Products of a block of 32 columns, in integers: exact, so in whatever order an instruction set likes.
//
// A format gives its codes four columns at a time, 16 rows side by side: codes<Isa>(tile block, m, low, high)
// are columns 4m .. 4m + 3 and 16 + 4m .. 19 + 4m. These groups are the outer loop, so that each broadcast
// of four activations serves every row. scale<Isa>(tile block), and minimum<Isa> if kHasMinimum, are floats.
#pragma once
#include "quant/held.h"

namespace inferno {

// Ask for part `part` of `kParts` of what a row tile holds a little ahead of block `w`, line by line: the hardware
// prefetcher alone stops at each 4 KB page, and several tokens' arithmetic leaves it too far behind (30.6 against
// 33.4 GB/s at 2.3 KB; docs/lab-notebook.md). No line twice, and in a loop: lines one by one among the products, or
// some of them twice, cost decode 2 to 20 % of the bandwidth.
constexpr int kPrefetchAhead = 2304;
template <class Isa, int kParts, class TileBlock>
INFERNO_INLINE void prefetch_part(const TileBlock* w, int part) {
    const char* ahead = (const char*)w + kPrefetchAhead;
    constexpr int kLines = (int)(sizeof(TileBlock) + 63) / 64;
    for (int line = kLines * part / kParts; line < kLines * (part + 1) / kParts; ++line)
        Isa::prefetch(ahead + 64 * line);
}

// The whole part of `value`, within 0 .. largest; 0 for NaN.
INFERNO_INLINE uint8_t clamped_code(float value, int largest) {
    return value >= (float)largest ? (uint8_t)largest : value >= 0.0f ? (uint8_t)value : 0;
}

// acc += scale_w * scale_x * total for token t: one rounding for the product of the scales, one for the fused
// multiply-add. Then, if the format has minima, += minimum * (scale_x * sum(q)).
template <class Isa, class Format>
INFERNO_INLINE void add_block(const typename Format::TileBlock& w, const auto& x, int t, typename Isa::I32 total,
                              float* acc) {
    const auto product = Isa::mul(Format::template scale<Isa>(w), Isa::splat(x.scale[t]));
    auto a = Isa::fma(Isa::to_float(total), product, Isa::load(acc));
    if constexpr (Format::kHasMinimum) a = Isa::fma(Format::template minimum<Isa>(w), Isa::splat(x.sum[t]), a);
    Isa::store(acc, a);
}

// A block of unsigned codes, 0 .. Format::kLargestCode, less Format::kOffset.
//
// An instruction set with narrow sums widens them every Isa::code_run(largest code) groups. One that can
// begin its sums anywhere begins them at the offset's share; the others add it when they widen.
template <class Isa, class Format, int T, int R>
    requires(!Isa::kHoldsCodes)
INFERNO_INLINE void step_unsigned(const typename Format::TileBlock* const (&w)[R], const auto& x,
                                  float (*acc)[T][kTileRows]) {
    constexpr int kRun = Isa::code_run(Format::kLargestCode) / 2;
    static_assert(kRun == 4 || kRun == 2);
    const auto start = [&](int t) { return start_of<Format>(x.bias[t]); };
    typename Isa::CodeSum sum[R][T];
    [[maybe_unused]] typename Isa::I32 first_run[R][T];
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
                if (m % kRun == 0) sum[r][t] = Isa::code_sum(kRun == 4 ? start(t) : 0);
                Isa::dot_codes(sum[r][t], low[r], first);
            }
            const auto second = Isa::broadcast(&x.q[t][16 + 4 * m]);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) Isa::dot_codes(sum[r][t], high[r], second);
        }
        if constexpr (kRun < 4) {
            if (m != kRun - 1) continue;
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) first_run[r][t] = Isa::code_total(sum[r][t], 0);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            if constexpr (kRun < 4) {
                const auto total = Isa::add(first_run[r][t], Isa::code_total(sum[r][t], start(t)));
                add_block<Isa, Format>(*w[r], x, t, total, acc[r][t]);
            } else {
                add_block<Isa, Format>(*w[r], x, t, Isa::code_total(sum[r][t], start(t)), acc[r][t]);
            }
        }
}

// A block of codes that are int8.
template <class Isa, class Format, int T, int R>
    requires(!Isa::kHoldsCodes)
INFERNO_INLINE void step_signed(const typename Format::TileBlock* const (&w)[R], const auto& x,
                                float (*acc)[T][kTileRows]) {
    typename Isa::ByteSum sum[R][T];
#pragma GCC unroll 4
    for (int m = 0; m < 4; ++m) {
        typename Isa::Bytes codes[2][R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) Format::template codes<Isa>(*w[r], m, codes[0][r], codes[1][r]);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            typename Isa::SignedBytes bytes[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) bytes[r] = Isa::signed_bytes(codes[half][r]);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const auto four = Isa::broadcast(&x.q[t][16 * half + 4 * m]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    if (m == 0 && half == 0) sum[r][t] = Isa::byte_sum(x.bias[t]);
                    Isa::dot_bytes(sum[r][t], bytes[r], four);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) add_block<Isa, Format>(*w[r], x, t, Isa::byte_total(sum[r][t]), acc[r][t]);
}

}  // namespace inferno
