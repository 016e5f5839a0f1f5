// Q8_0: 32 weights as int8 with one f16 scale, 8.5 bits a weight. Source of the block: ggml's block_q8_0.
#pragma once
#include "quant/codes.h"
#include "quant/least_squares.h"

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
        encode_by(w, amax / 127.0f, out);
    }

    // By weighted least squares; `importance` of the 32 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        if (!can_be_fitted(w)) return encode(w, out);
        float weight[kBlock];
        fit_weights(importance, weight);
        const float d = f16_to_f32(f32_to_f16(fit_scale(w, weight, -127.0f, 127.0f)));
        d == 0.0f ? encode(w, out) : encode_by(w, d, out);
    }

private:
    INFERNO_INLINE void encode_by(const float* w, float d, Block& out) {
        const float inverse = d != 0 ? 1.0f / d : 0.0f;
        out.scale = f32_to_f16(d);
        for (int j = 0; j < kBlock; ++j) {
            const float scaled = w[j] * inverse;
            // A fitted scale may clip; what is not finite has no code.
            const float clipped = scaled > 127.0f ? 127.0f : scaled < -127.0f ? -127.0f : scaled;
            const int truncated = scaled >= -256.0f && scaled <= 256.0f ? (int)clipped : 0;
            const float rest = clipped - (float)truncated;
            out.codes[j] = (int8_t)(truncated + (rest >= 0.5f) - (rest <= -0.5f));
        }
    }

public:
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
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        step_signed<Isa, Q8_0>(w, x, acc);
    }
};

}  // namespace inferno
