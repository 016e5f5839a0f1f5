// F32, F16 and BF16 weights, multiplied by float32 activations.
//
// The sum of a block of 32 columns starts from zero, column by column, each step one fused
// multiply-add; then one addition joins it to the row's total. The blocks' chains are independent,
// so the adder's latency hides, and the error grows with K/32 and not with K.
#pragma once
#include "quant/held.h"

namespace inferno {

// `Storage` says how one value is stored and how 16 rows of a column come back as floats.
template <class Storage>
struct FloatFormat {
    using Value = typename Storage::Value;
    static constexpr const char* kName = Storage::kName;
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::f32;
    static constexpr bool kEncodes = true;

    struct Block {
        Value w[kBlock];
    };
    // 16 rows of one block; columns k .. k + kGroup - 1 of a row are neighbours.
    static constexpr int kGroup = Storage::kGroup;
    struct TileBlock {
        Value w[kBlock / kGroup][kTileRows][kGroup];
    };

    INFERNO_INLINE void decode(const Block& in, float* w) {
        for (int k = 0; k < kBlock; ++k) w[k] = Storage::to_float(in.w[k]);
    }
    INFERNO_INLINE void encode(const float* w, Block& out) {
        for (int k = 0; k < kBlock; ++k) out.w[k] = Storage::from_float(w[k]);
    }
    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        for (int k = 0; k < kBlock; ++k) tile.w[k / kGroup][row][k % kGroup] = in.w[k];
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        for (int k = 0; k < kBlock; ++k) out.w[k] = tile.w[k / kGroup][row][k % kGroup];
    }

    // acc[r][t] += sum over the block, in column order.
    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const F32Block<T>& x, float (*acc)[T][kTileRows]) {
        add<Isa, T>(w, x.x, [&](int r, int t) INFERNO_INLINE_LAMBDA { return acc[r][t]; });
    }

    // The same for any number of tokens: four at once are 16 accumulators of Arm's 32 registers.
    template <class Isa>
    INFERNO_INLINE void step_held(const TileBlock& w, F32Tokens x, int tokens, float (*acc)[kTileRows]) {
        const TileBlock* const tiles[] = {&w};
        const auto some = [&](int first, auto width) INFERNO_INLINE_LAMBDA {
            add<Isa, width>(tiles, x.x + first, [&](int, int t) INFERNO_INLINE_LAMBDA { return acc[first + t]; });
        };
        int t = 0;
#pragma GCC unroll 1
        for (; t + 4 <= tokens; t += 4) some(t, Constant<4>{});
        if (t + 2 <= tokens) some(t, Constant<2>{}), t += 2;
        if (t < tokens) some(t, Constant<1>{});
    }

private:
    // acc(r, t): 16 rows of row tile r, of token t.
    template <class Isa, int T, int R>
    INFERNO_INLINE void add(const TileBlock* const (&w)[R], const float (*x)[kBlock], const auto& acc) {
        typename Isa::F32 sum[R][T];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) sum[r][t] = Isa::zero();
        // Pairs of columns, by constants: else each column is asked which of its group it is. What a pair takes besides
        // counts too: the fewer instructions, the more blocks a CPU looks ahead of a chain that waits for memory.
        static_assert(kGroup == 1 || kGroup == 2);
#pragma GCC unroll 1
        for (int64_t pair = 0; pair < kBlock / 2; ++pair)
            unrolled<2>([&](auto i) INFERNO_INLINE_LAMBDA {
                typename Isa::F32 column[R];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r)
                    column[r] =
                        Storage::template column<Isa>(&w[r]->w[pair * (2 / kGroup) + i / kGroup][0][0], i % kGroup);
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const auto value = Isa::splat(x[t][2 * pair + i]);
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) sum[r][t] = Isa::fma(column[r], value, sum[r][t]);
                }
            });
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) Isa::store(acc(r, t), Isa::add(Isa::load(acc(r, t)), sum[r][t]));
    }
};

struct StoredF32 {
    using Value = float;
    static constexpr const char* kName = "f32";
    static constexpr int kGroup = 1;
    INFERNO_INLINE float to_float(float v) { return v; }
    INFERNO_INLINE float from_float(float v) { return v; }
    template <class Isa>
    INFERNO_INLINE typename Isa::F32 column(const float* w, int) {
        return Isa::load(w);
    }
};

struct StoredF16 {
    using Value = f16;
    static constexpr const char* kName = "f16";
    static constexpr int kGroup = 1;
    INFERNO_INLINE float to_float(f16 v) { return f16_to_f32(v); }
    INFERNO_INLINE f16 from_float(float v) { return f32_to_f16(v); }
    template <class Isa>
    INFERNO_INLINE typename Isa::F32 column(const f16* w, int) {
        return Isa::load_f16(w);
    }
};

struct StoredBF16 {
    using Value = bf16;
    static constexpr const char* kName = "bf16";
    static constexpr int kGroup = 2;  // two columns share a 32-bit lane: a shift or a mask widens 16 rows
    INFERNO_INLINE float to_float(bf16 v) { return bf16_to_f32(v); }
    INFERNO_INLINE bf16 from_float(float v) { return f32_to_bf16(v); }
    template <class Isa>
    INFERNO_INLINE typename Isa::F32 column(const bf16* w, int which) {
        return which ? Isa::load_bf16_odd(w) : Isa::load_bf16_even(w);
    }
};

using F32 = FloatFormat<StoredF32>;
using F16 = FloatFormat<StoredF16>;
using BF16 = FloatFormat<StoredBF16>;

}  // namespace inferno
