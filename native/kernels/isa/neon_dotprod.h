// NEON with dot products of bytes (FEAT_DotProd): Neoverse N1 and Graviton 2, Cortex-A76, Apple M1, and later.
#pragma once
#include "kernels/isa/neon.h"

namespace inferno {

struct NeonDotprod : Neon {
    static constexpr const char* kName = "neon_dotprod";

    // Four activations are an element of a register with 16: no broadcast.
    template <int kFirst, int kGroups, int K>
    INFERNO_INLINE Slice::I32 dot_held(const Held& w, const int8_t* x, int, Slice::I32 sum) {
        int8x16_t x16[2];
        unrolled<(kGroups + 3) / 4, kFirst / 4>([&](auto i) INFERNO_INLINE_LAMBDA { x16[i] = vld1q_s8(x + 16 * i); });
        unrolled<kGroups, kFirst>([&](auto g) INFERNO_INLINE_LAMBDA {
            sum.value[0] = vdotq_laneq_s32(sum.value[0], w.group[g][0], x16[g / 4], g % 4);
            sum.value[1] = vdotq_laneq_s32(sum.value[1], w.group[g][1], x16[g / 4], g % 4);
        });
        return sum;
    }
};

}  // namespace inferno
