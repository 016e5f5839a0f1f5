// Q5_1: 32 weights as 5-bit integers with an f16 scale and an f16 minimum, 6 bits a weight:
// w = scale * code + minimum. Source of the block: ggml's block_q5_1.
#pragma once
#include "quant/least_squares.h"
#include "quant/nibbles.h"

namespace inferno {

struct Q5_1 {
    static constexpr const char* kName = "q5_1";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = true;
    static constexpr bool kHasMinimum = true;
    static constexpr int kLargestCode = 31, kOffset = 0;

    struct Block {
        f16 scale, minimum;
        uint8_t fifth_bits[4];  // bit j: of column j
        uint8_t nibbles[16];    // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 24);

    struct TileBlock {
        f16 scale[kTileRows], minimum[kTileRows];
        FifthBitTile fifth_bits;
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 384);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale), m = f16_to_f32(in.minimum);
        for (int j = 0; j < kBlock; ++j) w[j] = (float)five_bits(in.nibbles, in.fifth_bits, j) * d + m;
    }

    // The smallest value becomes code 0, the largest 31 (ggml's rule).
    INFERNO_INLINE void encode(const float* w, Block& out) {
        float low = w[0], high = w[0];
        for (int j = 1; j < kBlock; ++j) {
            if (w[j] < low) low = w[j];
            if (w[j] > high) high = w[j];
        }
        encode_by(w, (high - low) / 31.0f, low, out);
    }

    // By weighted least squares; `importance` of the 32 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        if (!can_be_fitted(w)) return encode(w, out);
        float weight[kBlock];
        fit_weights(importance, weight);
        const FittedLine line = fit_line(w, weight, 31.0f);
        const float d = f16_to_f32(f32_to_f16(line.d)), m = f16_to_f32(f32_to_f16(line.minimum));
        d == 0.0f ? encode(w, out) : encode_by(w, d, m, out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        tile.minimum[row] = in.minimum;
        pack_fifth_bits(in.fifth_bits, row, tile.fifth_bits);
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        out.minimum = tile.minimum[row];
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
    template <class Isa>
    INFERNO_INLINE auto minimum(const TileBlock& w) {
        return Isa::load_f16(w.minimum);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const Q8Block<T>& x, float (*acc)[T][kTileRows]) {
        step_unsigned<Isa, Q5_1>(w, x, acc);
    }

private:
    INFERNO_INLINE void encode_by(const float* w, float d, float minimum, Block& out) {
        const float inverse = d != 0 ? 1.0f / d : 0.0f;
        out.scale = f32_to_f16(d);
        out.minimum = f32_to_f16(minimum);
        uint8_t codes[kBlock];
        for (int j = 0; j < kBlock; ++j) codes[j] = clamped_code((w[j] - minimum) * inverse + 0.5f, 31);
        store_five_bits(codes, out.nibbles, out.fifth_bits);
    }
};

}  // namespace inferno
