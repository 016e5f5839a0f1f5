// Q8_0: 32 weights as int8 with one f16 scale, 8.5 bits a weight. Source of the block: ggml's block_q8_0.
#pragma once
#include "quant/activations.h"

namespace inferno {

struct Q8_0 {
    static constexpr const char* kName = "q8_0";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = true;

    struct Block {
        f16 scale;
        int8_t codes[kBlock];
    };
    static_assert(sizeof(Block) == 34);

    // codes[g][r]: columns 4g .. 4g+3 of row r.
    struct TileBlock {
        f16 scale[kTileRows];
        uint8_t codes[8][kTileRows][4];
    };
    static_assert(sizeof(TileBlock) == 544);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale);
        for (int j = 0; j < kBlock; ++j) w[j] = (float)in.codes[j] * d;
    }

    // scale = amax/127, codes rounded half away from zero, as ggml's reference does.
    INFERNO_INLINE void encode(const float* w, Block& out) {
        float amax = 0.0f;
        for (int j = 0; j < kBlock; ++j) {
            const float magnitude = w[j] < 0 ? -w[j] : w[j];
            amax = magnitude > amax ? magnitude : amax;
        }
        const float d = amax / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
        out.scale = f32_to_f16(d);
        for (int j = 0; j < kBlock; ++j) {
            const float scaled = w[j] * inverse;
            // |scaled| <= 127 but for rounding; what is not finite has no code.
            const int truncated = scaled >= -128.0f && scaled <= 128.0f ? (int)scaled : 0;
            const float rest = scaled - (float)truncated;
            out.codes[j] = (int8_t)(truncated + (rest >= 0.5f) - (rest <= -0.5f));
        }
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        for (int g = 0; g < 8; ++g) std::memcpy(tile.codes[g][row], in.codes + 4 * g, 4);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        for (int g = 0; g < 8; ++g) std::memcpy(out.codes + 4 * g, tile.codes[g][row], 4);
    }

    // acc[r][t] += scale_w * scale_x * sum(code * q).
    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const Q8Block<T>& x, float (*acc)[T][kTileRows]) {
        typename Isa::ByteSum sum[R][T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[r][t] = Isa::byte_sum(x.bias[t]);
#pragma GCC unroll 8
        for (int g = 0; g < 8; ++g) {
            typename Isa::SignedBytes bytes[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) bytes[r] = Isa::signed_bytes(Isa::load_bytes(&w[r]->codes[g][0][0]));
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const auto four = Isa::broadcast(&x.q[t][4 * g]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) Isa::dot_bytes(sum[r][t], bytes[r], four);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const auto scale = Isa::load_f16(w[r]->scale);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const auto product = Isa::mul(scale, Isa::splat(x.scale[t]));
                Isa::store(acc[r][t], Isa::fma(Isa::byte_total(sum[r][t]), product, Isa::load(acc[r][t])));
            }
        }
    }
};

}  // namespace inferno
