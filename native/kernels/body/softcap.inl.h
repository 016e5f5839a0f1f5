// limit * tanh(x / limit), which keeps scores and logits within +-limit (Gemma 2, arXiv:2408.00118,
// section 2), as limit - 2 limit / (1 + e^(2x / limit)): off by about one unit in the last place of the limit.
#pragma once
#include "kernels/body/exp.inl.h"

namespace inferno {

template <class Isa>
INFERNO_INLINE typename Isa::F32 softcap16(typename Isa::F32 x, float limit) {
    const auto e = exp16<Isa>(Isa::mul(x, Isa::splat(2.0f / limit)));
    const auto lacking = Isa::div(Isa::splat(2.0f * limit), Isa::add(Isa::splat(1.0f), e));
    // x - x is 0, or NaN where x is not finite: such a score must not look like one.
    return Isa::add(Isa::sub(Isa::splat(limit), lacking), Isa::sub(x, x));
}

template <class Isa>
void softcap(float* x, int64_t n, float limit) {
    for (int64_t i = 0; i < n; i += 16) {
        const auto y = softcap16<Isa>(Isa::load(x + i), limit);
        if (i + 16 <= n) {
            Isa::store(x + i, y);
        } else {
            alignas(64) float rest[16];
            Isa::store(rest, y);
            for (int64_t j = i; j < n; ++j) x[j] = rest[j - i];
        }
    }
}

}  // namespace inferno
