// Q8_0: 32 weights as int8 with one f16 scale, 8.5 bits a weight. Source of the block: ggml's block_q8_0.
#pragma once
#include "quant/codes.h"

namespace inferno {

struct Q8_0 {
    static constexpr const char* kName = "q8_0";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = true;
    static constexpr bool kHasMinimum = false;

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

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
        low = Isa::load_bytes(&w.codes[m][0][0]);
        high = Isa::load_bytes(&w.codes[4 + m][0][0]);
    }

    template <class Isa>
    INFERNO_INLINE auto scale(const TileBlock& w) {
        return Isa::load_f16(w.scale);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const Q8Block<T>& x, float (*acc)[T][kTileRows]) {
        step_signed<Isa, Q8_0>(w, x, acc);
    }
};

}  // namespace inferno
