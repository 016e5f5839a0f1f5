// Rotary position embedding (Su et al., arXiv:2104.09864), pairs (i, i + pairs) as Hugging Face
// stores them; rows of checkpoints that pair neighbours are reordered when they are packed.
#pragma once
#include "kernels/table.h"

namespace inferno {

template <class Isa>
void rope(float* x, int heads, int head_dim, int pairs, const float* INFERNO_RESTRICT cos,
          const float* INFERNO_RESTRICT sin) {
    for (int h = 0; h < heads; ++h) {
        float* INFERNO_RESTRICT a = x + (int64_t)h * head_dim;
        float* INFERNO_RESTRICT b = a + pairs;
        for (int i = 0; i < pairs; ++i) {
            const float x0 = a[i], x1 = b[i];
            a[i] = Isa::fma1(x0, cos[i], -(x1 * sin[i]));
            b[i] = Isa::fma1(x1, cos[i], x0 * sin[i]);
        }
    }
}

}  // namespace inferno
