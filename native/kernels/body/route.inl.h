// Mixtures of experts: which experts a token has, with what weights, and the sum of what they return.
// Experts are in ascending order, whatever their rank: sums over them have one order.
#pragma once
#include "kernels/body/exp.inl.h"
#include "kernels/table.h"

namespace inferno {

template <class Isa>
void route(float* logits, int experts, int chosen, bool normalize, int32_t* ids, float* weights) {
    uint64_t taken[kMaxExperts / 64] = {};
    const auto is_taken = [&](int e) { return (taken[e / 64] >> e % 64 & 1) != 0; };
    float highest = kExpLowest;
    for (int i = 0; i < chosen; ++i) {
        int best = -1;
        for (int e = 0; e < experts; ++e)
            if (!is_taken(e) && (best < 0 || logits[e] > logits[best])) best = e;
        taken[best / 64] |= uint64_t(1) << best % 64;
        if (i == 0) highest = logits[best];
    }
    for (int e = 0, i = 0; e < experts; ++e)
        if (is_taken(e)) ids[i++] = e;
    // exp of a NaN is 0 here: what it is subtracted from itself for is to stay one.
    for (int i = 0; i < chosen; ++i) weights[i] = exp1<Isa>(logits[ids[i]] - highest) + (highest - highest);
    float sum = 0.0f;
    if (normalize) {
        for (int i = 0; i < chosen; ++i) sum = sum + weights[i];
    } else {
        auto lanes = Isa::zero();
        for (int e = 0; e < experts; e += 16) {
            const auto x = exp16<Isa>(Isa::sub(Isa::load(logits + e), Isa::splat(highest)));
            lanes = Isa::add(lanes, Isa::keep_first(x, experts - e, 0.0f));
        }
        sum = Isa::reduce_add(lanes);
    }
    for (int i = 0; i < chosen; ++i) weights[i] = weights[i] / sum;
}

template <class Isa>
void combine(const float* const* rows, const float* weights, int count, int64_t columns, bool accumulate, float* out) {
    for (int64_t c = 0; c < columns; c += 16) {
        auto sum = Isa::zero();
        for (int i = 0; i < count; ++i) sum = Isa::fma(Isa::load(rows[i] + c), Isa::splat(weights[i]), sum);
        if (accumulate) sum = Isa::add(Isa::load(out + c), sum);
        if (c + 16 <= columns) {
            Isa::store(out + c, sum);
        } else {
            alignas(64) float rest[16];
            Isa::store(rest, sum);
            for (int64_t j = c; j < columns; ++j) out[j] = rest[j - c];
        }
    }
}

}  // namespace inferno
