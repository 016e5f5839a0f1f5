// Rotary position embedding (Su et al., arXiv:2104.09864), pairs (i, i + head_dim/2) as Hugging Face
// stores them; rows of checkpoints that pair neighbours are reordered when they are packed.
#pragma once
#include "kernels/table.h"

namespace inferno {

template <class Isa>
void rope(float* x, int heads, int head_dim, const float* INFERNO_RESTRICT cos, const float* INFERNO_RESTRICT sin) {
    const int half = head_dim / 2;
    for (int h = 0; h < heads; ++h) {
        float* INFERNO_RESTRICT a = x + (int64_t)h * head_dim;
        float* INFERNO_RESTRICT b = a + half;
        for (int i = 0; i < half; ++i) {
            const float x0 = a[i], x1 = b[i];
            a[i] = Isa::fma1(x0, cos[i], -(x1 * sin[i]));
            b[i] = Isa::fma1(x1, cos[i], x0 * sin[i]);
        }
    }
}

}  // namespace inferno
