// Products for an instruction set that holds codes. Arm has twice the registers of AVX2, each half as wide, and takes
// four activations as an element of a register: it unpacks 32 columns of 8 rows once, into 16 registers, and any number
// of tokens pass by, four at a time, through one code.
//
// What Isa says (kernels/isa/neon.h): Held, of eight groups of four columns; codes are int8, or unsigned and below 128,
// and one product serves both. kTogether tokens are multiplied at once. Lanes<K> are 8 rows by K tokens, in an order of
// its own: spread<K> brings rows into it, rows<K> takes them out.
#pragma once
#include "quant/activations.h"

namespace inferno {

// The activations of a block for any number of tokens: F32Block, Q8Block and Q8KBlock of so many.
struct F32Tokens {
    const float (*x)[kBlock];
    INFERNO_INLINE F32Tokens of(const void* block, int) { return {(const float (*)[kBlock])block}; }
};

struct Q8Tokens {
    const int8_t (*q)[kBlock];
    const float* scale;
    const int32_t* bias;
    const float* sum;
    INFERNO_INLINE Q8Tokens of(const void* block, int tokens) {
        const auto* q = (const int8_t (*)[kBlock])block;
        const auto* scale = (const float*)(q + tokens);
        return {q, scale, (const int32_t*)(scale + tokens), scale + 2 * tokens};
    }
    INFERNO_INLINE Q8Tokens from(Q8Tokens all, int t) { return {all.q + t, all.scale + t, all.bias + t, all.sum + t}; }
};

struct Q8KTokens {
    const int8_t (*q)[kSuperBlock];
    const float* scale;
    const int32_t (*bias)[16];
    const int16_t (*sums16)[16];
    const int16_t (*sums32)[8];
    INFERNO_INLINE Q8KTokens of(const void* block, int tokens) {
        const auto* q = (const int8_t (*)[kSuperBlock])block;
        const auto* scale = (const float*)(q + tokens);
        const auto* bias = (const int32_t (*)[16])(scale + tokens);
        const auto* sums16 = (const int16_t (*)[16])(bias + tokens);
        return {q, scale, bias, sums16, (const int16_t (*)[8])(sums16 + tokens)};
    }
    INFERNO_INLINE Q8KTokens from(Q8KTokens all, int t) {
        return {all.q + t, all.scale + t, all.bias + t, all.sums16 + t, all.sums32 + t};
    }
};

template <Activation kKind>
INFERNO_INLINE auto tokens_of(const void* block, int tokens) {
    if constexpr (kKind == Activation::f32)
        return F32Tokens::of(block, tokens);
    else if constexpr (kKind == Activation::q8)
        return Q8Tokens::of(block, tokens);
    else
        return Q8KTokens::of(block, tokens);
}

// body(held, t, width) for all tokens from t on: in fours, then those that are left. `hold()` is called again for
// these, or the compiler would have registers for both and move the codes from the ones to the others.
template <class Isa>
INFERNO_INLINE void in_fours(int tokens, const auto& hold, const auto& body) {
    int t = 0;
    if (tokens >= 4) {
        const auto held = hold();
#pragma GCC unroll 1
        for (; t + 4 <= tokens; t += 4) body(held, t, Constant<4>{});
    }
    if (t == tokens) return;
    Isa::forget();
    const auto held = hold();
    if constexpr (Isa::kTogether == 2)
        if (t + 2 <= tokens) body(held, t, Constant<2>{}), t += 2;
#pragma GCC unroll 1
    for (; t < tokens; ++t) body(held, t, Constant<1>{});
}

template <class Isa, int kWidth>
constexpr int kTogether = kWidth < Isa::kTogether ? 1 : Isa::kTogether;

// What the offset of unsigned codes comes to, of one token or of a register of them; bias is -8 * sum(q).
template <class Format>
INFERNO_INLINE auto start_of(auto bias) {
    return Format::kOffset % 8 ? (bias >> 3) * Format::kOffset : bias * (Format::kOffset / 8);
}

// acc += products of a block of 32 columns, for so many tokens. Lanes of tokens that are multiplied at once stay in
// their order until the last block: see `settle`.
template <class Isa, class Format>
INFERNO_INLINE void step_held(const typename Format::TileBlock& w, Q8Tokens x, int tokens, float (*acc)[kTileRows]) {
    using Slice = typename Isa::Slice;
    unrolled<Isa::kSlices>([&](auto s) INFERNO_INLINE_LAMBDA {
        const auto hold = [&]() INFERNO_INLINE_LAMBDA {
            typename Slice::Bytes groups[8];
            unrolled<4>([&](auto m) INFERNO_INLINE_LAMBDA {
                typename Isa::Bytes low, high;
                Format::template codes<Isa>(w, m, low, high);
                groups[m] = Isa::slice(low, s), groups[4 + m] = Isa::slice(high, s);
            });
            return Isa::hold(groups);
        };
        const auto scale = Isa::slice(Format::template scale<Isa>(w), s);
        in_fours<Isa>(tokens, hold, [&](const auto& held, int t, auto width) INFERNO_INLINE_LAMBDA {
            constexpr int K = kTogether<Isa, width>;
            using Lanes = typename Isa::template Lanes<K>;
            const auto scales = Isa::template few<width>(x.scale + t);
            const auto biases = Isa::template few<width>(x.bias + t);
            unrolled<width / K>([&](auto g) INFERNO_INLINE_LAMBDA {
                auto sum = Lanes::zero_i32();
                if constexpr (requires { Format::kOffset; }) sum = Isa::template begin<K, g>(start_of<Format>(biases));
                sum = Isa::template dot_held<0, 8, K>(held, x.q[t + K * g], kBlock, sum);
                const auto product = Isa::template times<K, g>(Isa::template spread<K>(scale), scales);
                float* out = acc[t + K * g] + Lanes::kLanes * s;
                auto a = Lanes::fma(Lanes::to_float(sum), product, Lanes::load(out));
                if constexpr (Format::kHasMinimum) {
                    const auto minimum = Isa::template spread<K>(Isa::slice(Format::template minimum<Isa>(w), s));
                    a = Isa::template add_times<K, g>(a, minimum, Isa::template few<width>(x.sum + t));
                }
                Lanes::store(out, a);
                Isa::in_order();
            });
        });
    });
}

// Brings the accumulators of `step_held` into the order of rows.
template <class Isa>
INFERNO_INLINE void settle(float (*acc)[kTileRows], int tokens) {
    if constexpr (Isa::kTogether == 2) {
        using Lanes = typename Isa::template Lanes<2>;
        for (int t = 0; t + 2 <= tokens; t += 2) {
            typename Lanes::F32 lanes[Isa::kSlices];
            for (int s = 0; s < Isa::kSlices; ++s) lanes[s] = Lanes::load(acc[t] + Lanes::kLanes * s);
            for (int s = 0; s < Isa::kSlices; ++s)
                for (int k = 0; k < 2; ++k)
                    Isa::Slice::store(acc[t + k] + Isa::Slice::kLanes * s, Isa::rows_of(lanes[s], k));
        }
    }
}

template <class Isa, class Format, int T, int R>
    requires(Isa::kHoldsCodes)
INFERNO_INLINE void step_unsigned(const typename Format::TileBlock* const (&w)[R], const Q8Block<T>& x,
                                  float (*acc)[T][kTileRows]) {
    for (int r = 0; r < R; ++r) step_held<Isa, Format>(*w[r], Q8Tokens::of(&x, T), T, acc[r]);
}

template <class Isa, class Format, int T, int R>
    requires(Isa::kHoldsCodes)
INFERNO_INLINE void step_signed(const typename Format::TileBlock* const (&w)[R], const Q8Block<T>& x,
                                float (*acc)[T][kTileRows]) {
    for (int r = 0; r < R; ++r) step_held<Isa, Format>(*w[r], Q8Tokens::of(&x, T), T, acc[r]);
}

// 32 columns of 256, whose sub-blocks of kSubBlock have a scale each: total += sum of scale * products, in the order
// of Lanes. codes(m, first, second) are kStep apart: columns 8m .. and 8m + 4 .., or 4m .. and 16 + 4m ..; scale(i) is
// of sub-block i of these, and start(t, i) what its products begin with.
template <class Isa, int kSubBlock, int kStep>
INFERNO_INLINE void add_held(const auto& codes, const auto& scale, Q8KTokens x, int tokens, int column,
                             const auto& start, int32_t (*total)[kTileRows]) {
    using Slice = typename Isa::Slice;
    constexpr int kSubBlocks = 32 / kSubBlock, kGroups = 8 / kSubBlocks;
    unrolled<Isa::kSlices>([&](auto s) INFERNO_INLINE_LAMBDA {
        const auto hold = [&]() INFERNO_INLINE_LAMBDA {
            typename Slice::Bytes groups[8];
            unrolled<4>([&](auto m) INFERNO_INLINE_LAMBDA {
                typename Isa::Bytes first, second;
                codes(m, first, second);
                constexpr int kAt = kStep == 1 ? 2 * m : m;
                groups[kAt] = Isa::slice(first, s), groups[kAt + kStep] = Isa::slice(second, s);
            });
            return Isa::hold(groups);
        };
        typename Slice::I32 scales[kSubBlocks];
        unrolled<kSubBlocks>([&](auto i) INFERNO_INLINE_LAMBDA { scales[i] = Isa::slice(scale(i), s); });
        in_fours<Isa>(tokens, hold, [&](const auto& held, int t, auto width) INFERNO_INLINE_LAMBDA {
            constexpr int K = kTogether<Isa, width>;
            using Lanes = typename Isa::template Lanes<K>;
            unrolled<width / K>([&](auto g) INFERNO_INLINE_LAMBDA {
                const int token = t + K * g;
                int32_t* out = total[token] + Lanes::kLanes * s;
                typename Lanes::I32 products[kSubBlocks];
                unrolled<kSubBlocks>([&](auto i) INFERNO_INLINE_LAMBDA {
                    const auto begin = Isa::template begin<K>(start(token, i), start(token + K - 1, i));
                    products[i] =
                        Isa::template dot_held<kGroups * i, kGroups, K>(held, x.q[token] + column, kSuperBlock, begin);
                });
                auto sum = Lanes::load(out);
                unrolled<kSubBlocks>([&](auto i) INFERNO_INLINE_LAMBDA {
                    sum = Lanes::multiply_add(products[i], Isa::template spread<K>(scales[i]), sum);
                });
                Lanes::store(out, sum);
                Isa::in_order();
            });
        });
    });
}

// acc += d * scale_x * total, and what `more(t, scaled, a)` adds, scaled(d) being d * scale_x; totals as add_held
// leaves them.
template <class Isa>
INFERNO_INLINE void add_totals(typename Isa::Slice::F32 d, Q8KTokens x, int tokens, int s,
                               const int32_t (*total)[kTileRows], float (*acc)[kTileRows], const auto& more) {
    using Slice = typename Isa::Slice;
    const auto nothing = []() INFERNO_INLINE_LAMBDA { return 0; };
    in_fours<Isa>(tokens, nothing, [&](int, int t, auto width) INFERNO_INLINE_LAMBDA {
        constexpr int K = kTogether<Isa, width>;
        using Lanes = typename Isa::template Lanes<K>;
        const auto scales = Isa::template few<width>(x.scale + t);
        unrolled<width / K>([&](auto g) INFERNO_INLINE_LAMBDA {
            const auto sums = Lanes::load(total[t + K * g] + Lanes::kLanes * s);
            unrolled<K>([&](auto k) INFERNO_INLINE_LAMBDA {
                constexpr int kToken = K * g + k;
                float* out = acc[t + kToken] + Slice::kLanes * s;
                const auto scaled = [&](auto factor) INFERNO_INLINE_LAMBDA {
                    return Isa::template times<1, kToken>(factor, scales);
                };
                const auto a = Slice::fma(Slice::to_float(Isa::rows_of(sums, k)), scaled(d), Slice::load(out));
                Slice::store(out, more(t + kToken, scaled, a));
                Isa::in_order();
            });
        });
    });
}

}  // namespace inferno
