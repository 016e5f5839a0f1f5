// Q5_0: 32 weights as 5-bit integers with one f16 scale, 5.5 bits a weight.
// Stored code = w/scale + 16. Source of the block: ggml's block_q5_0.
#pragma once
#include "quant/least_squares.h"
#include "quant/nibbles.h"

namespace inferno {

struct Q5_0 {
    static constexpr const char* kName = "q5_0";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = true;
    static constexpr bool kHasMinimum = false;
    static constexpr int kLargestCode = 31, kOffset = 16;

    struct Block {
        f16 scale;
        uint8_t fifth_bits[4];  // bit j: of column j
        uint8_t nibbles[16];    // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 22);

    struct TileBlock {
        f16 scale[kTileRows];
        FifthBitTile fifth_bits;
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 352);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale);
        for (int j = 0; j < kBlock; ++j) w[j] = (float)(five_bits(in.nibbles, in.fifth_bits, j) - 16) * d;
    }

    // The value of largest magnitude keeps its sign and maps to -16 exactly (ggml's rule).
    INFERNO_INLINE void encode(const float* w, Block& out) {
        float largest = 0.0f, signed_largest = w[0];
        for (int j = 0; j < kBlock; ++j) {
            const float magnitude = w[j] < 0 ? -w[j] : w[j];
            if (magnitude > largest) largest = magnitude, signed_largest = w[j];
        }
        encode_by(w, signed_largest / -16.0f, out);
    }

    // By weighted least squares; `importance` of the 32 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        if (!can_be_fitted(w)) return encode(w, out);
        float weight[kBlock];
        fit_weights(importance, weight);
        const float d = f16_to_f32(f32_to_f16(fit_scale(w, weight, -16.0f, 15.0f)));
        d == 0.0f ? encode(w, out) : encode_by(w, d, out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        pack_fifth_bits(in.fifth_bits, row, tile.fifth_bits);
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        unpack_fifth_bits(tile.fifth_bits, row, out.fifth_bits);
        unpack_nibbles(tile.nibbles, row, out.nibbles);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
        load_five_bits<Isa>(w.nibbles, w.fifth_bits, m, low, high);
    }

    template <class Isa>
    INFERNO_INLINE auto scale(const TileBlock& w) {
        return Isa::load_f16(w.scale);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        step_unsigned<Isa, Q5_0>(w, x, acc);
    }

private:
    INFERNO_INLINE void encode_by(const float* w, float d, Block& out) {
        const float inverse = d != 0 ? 1.0f / d : 0.0f;
        out.scale = f32_to_f16(d);
        uint8_t codes[kBlock];
        for (int j = 0; j < kBlock; ++j) codes[j] = clamped_code(w[j] * inverse + 16.5f, 31);
        store_five_bits(codes, out.nibbles, out.fifth_bits);
    }
};

}  // namespace inferno
