// Q4_0: 32 weights as 4-bit integers with one f16 scale, 4.5 bits a weight.
// Stored nibble = w/scale + 8, so nibbles are unsigned and fit the unsigned side of a byte dot product.
// Source of the block: ggml's block_q4_0.
#pragma once
#include "quant/least_squares.h"
#include "quant/nibbles.h"

namespace inferno {

struct Q4_0 {
    static constexpr const char* kName = "q4_0";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = true;
    static constexpr bool kHasMinimum = false;
    static constexpr int kLargestCode = 15, kOffset = 8;

    struct Block {
        f16 scale;
        uint8_t nibbles[16];  // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 18);

    struct TileBlock {
        f16 scale[kTileRows];
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 288);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale);
        for (int j = 0; j < 16; ++j) {
            w[j] = (float)((in.nibbles[j] & 15) - 8) * d;
            w[j + 16] = (float)((in.nibbles[j] >> 4) - 8) * d;
        }
    }

    // The value of largest magnitude keeps its sign and maps to -8 exactly, so it is never clipped
    // (llama.cpp's rule; max/8 clips half of all blocks' largest weight by an eighth).
    INFERNO_INLINE void encode(const float* w, Block& out) {
        float largest = 0.0f, signed_largest = w[0];
        for (int j = 0; j < kBlock; ++j) {
            const float magnitude = w[j] < 0 ? -w[j] : w[j];
            if (magnitude > largest) largest = magnitude, signed_largest = w[j];
        }
        encode_by(w, signed_largest / -8.0f, out);
    }

    // The largest magnitude over 8, for comparison: if it is positive, it has no code and is clipped to 7.
    INFERNO_INLINE void encode_naively(const float* w, Block& out) {
        float largest = 0.0f;
        for (int j = 0; j < kBlock; ++j) {
            const float magnitude = w[j] < 0 ? -w[j] : w[j];
            largest = magnitude > largest ? magnitude : largest;
        }
        encode_by(w, largest / 8.0f, out);
    }

    // By weighted least squares; `importance` of the 32 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        if (!can_be_fitted(w)) return encode(w, out);
        float weight[kBlock];
        fit_weights(importance, weight);
        // The codes are those nearest by the scale that is stored, after its rounding.
        const float d = f16_to_f32(f32_to_f16(fit_scale(w, weight, -8.0f, 7.0f)));
        d == 0.0f ? encode(w, out) : encode_by(w, d, out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        unpack_nibbles(tile.nibbles, row, out.nibbles);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
        load_nibbles<Isa>(w.nibbles, m, low, high);
    }

    template <class Isa>
    INFERNO_INLINE auto scale(const TileBlock& w) {
        return Isa::load_f16(w.scale);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        step_unsigned<Isa, Q4_0>(w, x, acc);
    }

private:
    INFERNO_INLINE void encode_by(const float* w, float d, Block& out) {
        const float inverse = d != 0 ? 1.0f / d : 0.0f;
        out.scale = f32_to_f16(d);
        const auto code = [&](int j) { return clamped_code(w[j] * inverse + 8.5f, 15); };
        for (int j = 0; j < 16; ++j) out.nibbles[j] = (uint8_t)(code(j) | code(j + 16) << 4);
    }
};

}  // namespace inferno
