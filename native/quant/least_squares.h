// The scale of a block by weighted least squares: of all d and codes q, those for which the sum of
// weight * (x - d q)^2 is small. For a given d the nearest codes are best, whatever the weights; for given codes
// d = sum(w x q) / sum(w q q) is, and leaves sum(w x x) - sum(w x q)^2 / sum(w q q). So a few scales near the one
// that just avoids clipping are tried, the best is kept, and the two steps alternate from there.
//
// The idea is that of ggml's make_qx_quants and make_qkx2_quants. Sums run in eight lanes, for compilers to
// vectorize without changing their order.
#pragma once

#include "quant/activations.h"

namespace inferno {

constexpr int kFitLanes = 8;
// Candidates reach 0.1 * kFitSteps codes to either side of the range: a tenth of Q4_0's eight codes.
constexpr int kFitSteps = 9, kFitRounds = 3;

// To the nearest integer, ties to even: adding 1.5 * 2^23 leaves no bits for a fraction. |x| < 2^22.
INFERNO_INLINE float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

INFERNO_INLINE float nearest_code(float scaled, float low, float high) {
    const float clipped = scaled < low ? low : scaled > high ? high : scaled;
    return nearest(clipped);
}

INFERNO_INLINE float sum_lanes(const float* lanes) {
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// What least squares asks of codes q = (x - minimum) * inverse, rounded.
struct FitSums {
    float q, qq, xq;  // weighted
};

template <int kCount = kBlock>
INFERNO_INLINE FitSums fit_sums(const float* x, const float* weight, float minimum, float inverse, float low,
                                float high) {
    float q_lanes[kFitLanes] = {}, qq_lanes[kFitLanes] = {}, xq_lanes[kFitLanes] = {};
    for (int k = 0; k < kCount; k += kFitLanes)
        for (int lane = 0; lane < kFitLanes; ++lane) {
            const float value = x[k + lane], q = nearest_code((value - minimum) * inverse, low, high);
            const float wq = weight[k + lane] * q;
            q_lanes[lane] += wq;
            qq_lanes[lane] += wq * q;
            xq_lanes[lane] += wq * value;
        }
    return {sum_lanes(q_lanes), sum_lanes(qq_lanes), sum_lanes(xq_lanes)};
}

// Whether there is anything to fit: finite values, and not all of them zero.
template <int kCount = kBlock>
INFERNO_INLINE bool can_be_fitted(const float* x) {
    float sum = 0.0f, any = 0.0f;
    for (int k = 0; k < kCount; ++k) {
        sum += x[k] * 0.0f;  // NaN, if one value is not finite
        any = x[k] != 0.0f ? 1.0f : any;
    }
    return sum == 0.0f && any != 0.0f;
}

// Weights of a block's columns. Uniform if none were given, or if all of them are zero: of the other weights that
// are in use, x^2 and sqrt(mean(x^2) + x^2), both came out behind (docs/lab-notebook.md).
INFERNO_INLINE void fit_weights(const float* importance, float* weight) {
    float sum = 0.0f;
    for (int k = 0; k < kBlock; ++k) sum += importance ? importance[k] : 0.0f;
    for (int k = 0; k < kBlock; ++k) weight[k] = sum > 0.0f ? importance[k] : 1.0f;
}

INFERNO_INLINE float magnitude_of(float x) { return x < 0 ? -x : x; }

// Return d for codes low to high, for which x ~ d q. Both signs are tried: the range reaches further on one side.
template <int kCount = kBlock>
INFERNO_INLINE float fit_scale(const float* x, const float* weight, float low, float high) {
    float largest = 0.0f;
    for (int k = 0; k < kCount; ++k) largest = magnitude_of(x[k]) > magnitude_of(largest) ? x[k] : largest;
    float best_d = 0.0f, best = 0.0f;
    for (int step = -kFitSteps; step <= kFitSteps; ++step)
        for (int side = 0; side < 2; ++side) {
            const float end = (side ? high : low) + 0.1f * (float)step;
            const FitSums s = fit_sums<kCount>(x, weight, 0.0f, end / largest, low, high);
            const float explained = s.qq > 0.0f ? s.xq * s.xq / s.qq : 0.0f;
            if (explained > best) best = explained, best_d = s.xq / s.qq;
        }
    for (int round = 0; round < kFitRounds && best_d != 0.0f; ++round) {
        const FitSums s = fit_sums<kCount>(x, weight, 0.0f, 1.0f / best_d, low, high);
        if (s.qq > 0.0f) best_d = s.xq / s.qq;
    }
    return best_d;
}

struct FittedLine {
    float d, minimum;
};

// Return d and a minimum for codes 0 to high, for which x ~ d q + minimum; d is 0 if the values are all the same.
// kNotAbove: the minimum may not be above zero.
template <int kCount = kBlock, bool kNotAbove = false>
INFERNO_INLINE FittedLine fit_line(const float* x, const float* weight, float high) {
    float least = kNotAbove && x[0] > 0.0f ? 0.0f : x[0], most = x[0], w = 0.0f, wx = 0.0f;
    for (int k = 0; k < kCount; ++k) {
        least = x[k] < least ? x[k] : least;
        most = x[k] > most ? x[k] : most;
        w += weight[k];
        wx += weight[k] * x[k];
    }
    FittedLine best{0.0f, least};
    if (most == least) return best;
    // What codes by `line` would leave of the error, up to sum(w x x); and the line that fits them best.
    const auto refit = [&](float minimum, float inverse, FittedLine& fitted) {
        const FitSums s = fit_sums<kCount>(x, weight, minimum, inverse, 0.0f, high);
        const float determinant = w * s.qq - s.q * s.q;
        if (!(determinant > 0.0f)) return 0.0f;
        fitted = {(w * s.xq - wx * s.q) / determinant, (s.qq * wx - s.q * s.xq) / determinant};
        if (kNotAbove && fitted.minimum > 0.0f) fitted = {s.xq / s.qq, 0.0f};
        return fitted.d * s.xq + fitted.minimum * wx;
    };
    float explained = 0.0f;
    for (int step = -kFitSteps; step <= kFitSteps; ++step) {
        FittedLine line{};
        const float gain = refit(least, (high + 0.1f * (float)step) / (most - least), line);
        if (line.d > 0.0f && gain > explained) explained = gain, best = line;
    }
    for (int round = 0; round < kFitRounds && best.d > 0.0f; ++round) {
        FittedLine line{};
        const float gain = refit(best.minimum, 1.0f / best.d, line);
        if (line.d > 0.0f && gain > explained) explained = gain, best = line;
    }
    return best;
}

}  // namespace inferno
