// Floats to blocks of 256 columns (quant/super_blocks.h): the integers of a block, before they are stored.
//
// A format says, beside what its products need,
//   kLeastScale, kLargestScale     of its sub-blocks; if there are minima, those go from 0 to kLargestScale too
//   join(parts, block)             which stores them
#pragma once
#include "quant/least_squares.h"
#include "quant/super_blocks.h"

namespace inferno {

// w = d * scales[i] * (code - offset) - dmin * minima[i], sub-block by sub-block.
struct SuperParts {
    f16 d, dmin;
    int scales[kSuperBlock / 16], minima[kSuperBlock / 16];
    uint8_t codes[kSuperBlock];
};

// The codes of a format less their offset, as floats.
template <class Format>
struct CodeRange {
    static constexpr float kLow = [] {
        if constexpr (Format::kHasMinima)
            return 0.0f;
        else
            return (float)-(1 << Format::kOffsetBits);
    }();
    static constexpr float kHigh = kLow + (float)Format::kLargestCode;
};

INFERNO_INLINE float reciprocal(float x) { return x != 0.0f ? 1.0f / x : 0.0f; }
// What is not a number has no code.
INFERNO_INLINE int integer_code(float scaled, float low, float high) {
    const float code = nearest_code(scaled, low, high);
    return code == code ? (int)code : 0;
}

// The nearest codes for scales and minima that are settled.
template <class Format>
INFERNO_INLINE void choose_codes(const float* w, SuperParts& parts) {
    using Range = CodeRange<Format>;
    const float d = f16_to_f32(parts.d), dmin = f16_to_f32(parts.dmin);
    for (int i = 0; i < kSuperBlock / Format::kSubBlock; ++i) {
        const float inverse = reciprocal(d * (float)parts.scales[i]), shift = dmin * (float)parts.minima[i];
        for (int k = i * Format::kSubBlock; k < (i + 1) * Format::kSubBlock; ++k)
            parts.codes[k] =
                (uint8_t)(integer_code((w[k] + shift) * inverse, Range::kLow, Range::kHigh) - (int)Range::kLow);
    }
}

// The extremes of each sub-block become the extreme codes, and the largest scale and minimum the largest integers:
// one pass over the weights, for those who wait. ggml's own rule is a search.
template <class Format>
INFERNO_INLINE SuperParts round_super_block(const float* w) {
    using Range = CodeRange<Format>;
    constexpr int kSubs = kSuperBlock / Format::kSubBlock;
    constexpr float kMost = (float)Format::kLargestScale;
    float scales[kSubs], minima[kSubs], largest_scale = 0.0f, largest_minimum = 0.0f;
    for (int i = 0; i < kSubs; ++i) {
        const float* x = w + i * Format::kSubBlock;
        float least = 0.0f, most = 0.0f, largest = 0.0f;
        for (int k = 0; k < Format::kSubBlock; ++k) {
            least = x[k] < least ? x[k] : least;
            most = x[k] > most ? x[k] : most;
            largest = magnitude_of(x[k]) > magnitude_of(largest) ? x[k] : largest;
        }
        scales[i] = Format::kHasMinima ? (most - least) / Range::kHigh : largest / Range::kLow;
        minima[i] = Format::kHasMinima ? -least : 0.0f;
        largest_scale = magnitude_of(scales[i]) > largest_scale ? magnitude_of(scales[i]) : largest_scale;
        largest_minimum = minima[i] > largest_minimum ? minima[i] : largest_minimum;
    }
    SuperParts parts{};
    parts.d = f32_to_f16(largest_scale / kMost);
    parts.dmin = f32_to_f16(largest_minimum / kMost);
    const float inverse = reciprocal(f16_to_f32(parts.d)), inverse_minimum = reciprocal(f16_to_f32(parts.dmin));
    for (int i = 0; i < kSubs; ++i) {
        parts.scales[i] = integer_code(scales[i] * inverse, Format::kHasMinima ? 0.0f : -kMost, kMost);
        parts.minima[i] = integer_code(minima[i] * inverse_minimum, 0.0f, kMost);
    }
    choose_codes<Format>(w, parts);
    return parts;
}

// What the nearest codes leave of a sub-block: sum(weight * (x - (scale * q - minimum))^2).
template <int kCount>
INFERNO_INLINE float fit_error(const float* x, const float* weight, float scale, float minimum, float low, float high) {
    const float inverse = reciprocal(scale);
    float lanes[kFitLanes] = {};
    for (int k = 0; k < kCount; k += kFitLanes)
        for (int lane = 0; lane < kFitLanes; ++lane) {
            const float shifted = x[k + lane] + minimum;
            const float rest = shifted - scale * nearest_code(shifted * inverse, low, high);
            lanes[lane] += weight[k + lane] * rest * rest;
        }
    return sum_lanes(lanes);
}

// By weighted least squares. First each sub-block has the scale and minimum it likes best; then d and dmin are such
// that the largest fit, the integers for the others are those among the nearest few that leave the least, scale and
// minimum together, and d and dmin are fitted to them anew; as long as that helps. A column that matters nothing
// still weighs a millionth of the one that matters most: it should be near, other things equal.
template <class Format>
INFERNO_INLINE SuperParts fit_super_block(const float* w, const float* importance) {
    using Range = CodeRange<Format>;
    constexpr int kSub = Format::kSubBlock, kSubs = kSuperBlock / kSub, kReach = Format::kHasMinima ? 1 : 0;
    if (!can_be_fitted<kSuperBlock>(w)) return round_super_block<Format>(w);
    float weight[kSuperBlock], most = 0.0f;
    for (int k = 0; k < kSuperBlock; ++k) most = importance && importance[k] > most ? importance[k] : most;
    for (int k = 0; k < kSuperBlock; ++k) {
        const float least = most * 1e-6f;
        weight[k] = most > 0.0f ? (importance[k] > least ? importance[k] : least) : 1.0f;
    }

    float scales[kSubs], minima[kSubs], largest_scale = 0.0f, largest_minimum = 0.0f;
    float sum_w[kSubs], sum_wx[kSubs];
    for (int i = 0; i < kSubs; ++i) {
        const float *x = w + i * kSub, *v = weight + i * kSub;
        if constexpr (Format::kHasMinima) {
            const FittedLine line = fit_line<kSub, true>(x, v, Range::kHigh);
            scales[i] = line.d, minima[i] = -line.minimum;
        } else {
            scales[i] = fit_scale<kSub>(x, v, Range::kLow, Range::kHigh), minima[i] = 0.0f;
        }
        largest_scale = magnitude_of(scales[i]) > magnitude_of(largest_scale) ? scales[i] : largest_scale;
        largest_minimum = minima[i] > largest_minimum ? minima[i] : largest_minimum;
        sum_w[i] = sum_wx[i] = 0.0f;
        for (int k = 0; k < kSub; ++k) sum_w[i] += v[k], sum_wx[i] += v[k] * x[k];
    }
    SuperParts parts{}, best{};
    // Signed scales reach one further below zero.
    parts.d = f32_to_f16(largest_scale / (float)(Format::kHasMinima ? Format::kLargestScale : Format::kLeastScale));
    parts.dmin = f32_to_f16(largest_minimum / (float)Format::kLargestScale);
    float least = -1.0f;  // none yet
    for (int round = 0; round < kFitRounds; ++round) {
        const float d = f16_to_f32(parts.d), dmin = f16_to_f32(parts.dmin);
        float total = 0.0f;
        // Of x = d * a - dmin * b, where a = scale * q and b = minimum.
        float aa = 0.0f, ab = 0.0f, bb = 0.0f, xa = 0.0f, xb = 0.0f;
        for (int i = 0; i < kSubs; ++i) {
            const float *x = w + i * kSub, *v = weight + i * kSub;
            constexpr float kLeast = (float)Format::kLeastScale, kLargest = (float)Format::kLargestScale;
            const int scale = integer_code(scales[i] * reciprocal(d), kLeast, kLargest);
            const int minimum = integer_code(minima[i] * reciprocal(dmin), 0.0f, kLargest);
            float left = -1.0f;
            for (int s = scale - 1; s <= scale + 1; ++s)
                for (int m = minimum - kReach; m <= minimum + kReach; ++m) {
                    if (s < Format::kLeastScale || s > Format::kLargestScale || m < 0 || m > Format::kLargestScale)
                        continue;
                    const float error = fit_error<kSub>(x, v, d * (float)s, dmin * (float)m, Range::kLow, Range::kHigh);
                    if (left < 0.0f || error < left) left = error, parts.scales[i] = s, parts.minima[i] = m;
                }
            total += left;
            const float s = (float)parts.scales[i], m = (float)parts.minima[i];
            const FitSums sums = fit_sums<kSub>(x, v, -dmin * m, reciprocal(d * s), Range::kLow, Range::kHigh);
            aa += s * s * sums.qq, ab += s * m * sums.q, bb += m * m * sum_w[i];
            xa += s * sums.xq, xb += m * sum_wx[i];
        }
        if (!(total < least || least < 0.0f)) break;
        least = total, best = parts;
        const float determinant = aa * bb - ab * ab;
        float new_d = aa > 0.0f ? xa / aa : 0.0f, new_dmin = 0.0f;
        if (determinant > 0.0f) {
            new_d = (xa * bb - xb * ab) / determinant;
            new_dmin = (xa * ab - xb * aa) / determinant;
        }
        if (new_d == 0.0f || new_dmin < 0.0f) break;
        parts.d = f32_to_f16(new_d), parts.dmin = f32_to_f16(new_dmin);
        for (int i = 0; i < kSubs; ++i) {
            scales[i] = new_d * (float)best.scales[i];
            minima[i] = new_dmin * (float)best.minima[i];
        }
    }
    if (f16_to_f32(best.d) == 0.0f || !(least >= 0.0f)) return round_super_block<Format>(w);
    choose_codes<Format>(w, best);
    return best;
}

}  // namespace inferno
