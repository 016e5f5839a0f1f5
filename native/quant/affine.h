// Formats whose 32 codes lie on a line, w = scale * code + minimum, with both as f16: what q4_1 and q5_1 share. A
// Format brings kLargestCode, its Block and TileBlock, and `store_codes` for the 32 codes of a block.
#pragma once
#include "quant/codes.h"
#include "quant/least_squares.h"

namespace inferno {

template <class Format>
struct AffineFormat {
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = true;
    static constexpr bool kHasMinimum = true;
    static constexpr int kOffset = 0;

    // The smallest value becomes code 0, the largest the largest code: ggml's rule.
    INFERNO_INLINE void encode(const float* w, auto& out) {
        float least = w[0], most = w[0];
        for (int j = 1; j < kBlock; ++j) {
            least = w[j] < least ? w[j] : least;
            most = w[j] > most ? w[j] : most;
        }
        encode_by(w, (most - least) / (float)Format::kLargestCode, least, out);
    }

    // By weighted least squares; `importance` of the 32 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, auto& out) {
        if (!can_be_fitted(w)) return encode(w, out);
        float weight[kBlock];
        fit_weights(importance, weight);
        const FittedLine line = fit_line(w, weight, (float)Format::kLargestCode);
        const float d = f16_to_f32(f32_to_f16(line.d)), m = f16_to_f32(f32_to_f16(line.minimum));
        d == 0.0f ? encode(w, out) : encode_by(w, d, m, out);
    }

    template <class Isa>
    INFERNO_INLINE auto scale(const auto& w) {
        return Isa::load_f16(w.scale);
    }
    template <class Isa>
    INFERNO_INLINE auto minimum(const auto& w) {
        return Isa::load_f16(w.minimum);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const auto* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        step_unsigned<Isa, Format>(w, x, acc);
    }

private:
    INFERNO_INLINE void encode_by(const float* w, float d, float minimum, auto& out) {
        const float inverse = d != 0 ? 1.0f / d : 0.0f;
        out.scale = f32_to_f16(d);
        out.minimum = f32_to_f16(minimum);
        uint8_t codes[kBlock];
        for (int j = 0; j < kBlock; ++j)
            codes[j] = clamped_code((w[j] - minimum) * inverse + 0.5f, Format::kLargestCode);
        Format::store_codes(codes, out);
    }
};

}  // namespace inferno
