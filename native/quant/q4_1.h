// Q4_1: 32 weights as 4-bit integers with an f16 scale and an f16 minimum, 5 bits a weight:
// w = scale * code + minimum. Source of the block: ggml's block_q4_1.
#pragma once
#include "quant/least_squares.h"
#include "quant/nibbles.h"

namespace inferno {

struct Q4_1 {
    static constexpr const char* kName = "q4_1";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = true;
    static constexpr bool kHasMinimum = true;
    static constexpr int kLargestCode = 15, kOffset = 0;

    struct Block {
        f16 scale, minimum;
        uint8_t nibbles[16];  // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 20);

    struct TileBlock {
        f16 scale[kTileRows], minimum[kTileRows];
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 320);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale), m = f16_to_f32(in.minimum);
        for (int j = 0; j < 16; ++j) {
            w[j] = (float)(in.nibbles[j] & 15) * d + m;
            w[j + 16] = (float)(in.nibbles[j] >> 4) * d + m;
        }
    }

    // The smallest value becomes code 0, the largest 15: ggml's rule.
    INFERNO_INLINE void encode(const float* w, Block& out) {
        float least = w[0], most = w[0];
        for (int j = 1; j < kBlock; ++j) {
            least = w[j] < least ? w[j] : least;
            most = w[j] > most ? w[j] : most;
        }
        encode_by(w, (most - least) / 15.0f, least, out);
    }

    // By weighted least squares; `importance` of the 32 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        if (!can_be_fitted(w)) return encode(w, out);
        float weight[kBlock];
        fit_weights(importance, weight);
        const FittedLine line = fit_line(w, weight, 15.0f);
        const float d = f16_to_f32(f32_to_f16(line.d)), m = f16_to_f32(f32_to_f16(line.minimum));
        d == 0.0f ? encode(w, out) : encode_by(w, d, m, out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        tile.minimum[row] = in.minimum;
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        out.minimum = tile.minimum[row];
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
    template <class Isa>
    INFERNO_INLINE auto minimum(const TileBlock& w) {
        return Isa::load_f16(w.minimum);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const Q8Block<T>& x, float (*acc)[T][kTileRows]) {
        step_unsigned<Isa, Q4_1>(w, x, acc);
    }

private:
    INFERNO_INLINE void encode_by(const float* w, float d, float minimum, Block& out) {
        const float inverse = d != 0 ? 1.0f / d : 0.0f;
        out.scale = f32_to_f16(d);
        out.minimum = f32_to_f16(minimum);
        const auto code = [&](int j) { return clamped_code((w[j] - minimum) * inverse + 0.5f, 15); };
        for (int j = 0; j < 16; ++j) out.nibbles[j] = (uint8_t)(code(j) | code(j + 16) << 4);
    }
};

}  // namespace inferno
