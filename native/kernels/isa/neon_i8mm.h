// NEON with products of int8 matrices (FEAT_I8MM): Neoverse V1 and Graviton 3, Apple M2, and later.
#pragma once
#include "kernels/isa/neon_dotprod.h"

namespace inferno {

struct NeonI8mm : NeonDotprod {
    static constexpr const char* kName = "neon_i8mm";

    // smmla multiplies 2 rows x 8 columns with 8 columns x 2 tokens, twice what sdot does.
    struct Held {
        int8x16_t octet[4][4];  // 8 columns of each of four pairs of rows
    };
    INFERNO_INLINE Held hold(const Slice::Bytes (&groups)[8]) {
        Held out;
        unrolled<4>([&](auto o) INFERNO_INLINE_LAMBDA {
            unrolled<2>([&](auto i) INFERNO_INLINE_LAMBDA {
                const int32x4_t even = vreinterpretq_s32_u8(groups[2 * o].value[i]);
                const int32x4_t odd = vreinterpretq_s32_u8(groups[2 * o + 1].value[i]);
                out.octet[o][2 * i] = vreinterpretq_s8_s32(vzip1q_s32(even, odd));
                out.octet[o][2 * i + 1] = vreinterpretq_s8_s32(vzip2q_s32(even, odd));
            });
        });
        return out;
    }

    // Lanes of two tokens: rows 2i and 2i + 1 by both in register i, as smmla leaves them.
    static constexpr int kTogether = 2;
    template <int K>
    INFERNO_INLINE auto spread(const Slice::F32& rows) {
        if constexpr (K == 1)
            return rows;
        else
            return Lanes<2>::F32{vzip1q_f32(rows.value[0], rows.value[0]), vzip2q_f32(rows.value[0], rows.value[0]),
                                 vzip1q_f32(rows.value[1], rows.value[1]), vzip2q_f32(rows.value[1], rows.value[1])};
    }
    template <int K>
    INFERNO_INLINE auto spread(const Slice::I32& rows) {
        if constexpr (K == 1)
            return rows;
        else
            return Lanes<2>::I32{vzip1q_s32(rows.value[0], rows.value[0]), vzip2q_s32(rows.value[0], rows.value[0]),
                                 vzip1q_s32(rows.value[1], rows.value[1]), vzip2q_s32(rows.value[1], rows.value[1])};
    }
    INFERNO_INLINE auto rows_of(const Slice::F32& lanes, int) { return lanes; }
    INFERNO_INLINE auto rows_of(const Slice::I32& lanes, int) { return lanes; }
    INFERNO_INLINE Slice::F32 rows_of(const Lanes<2>::F32& a, int k) {
        if (k == 0) return {vuzp1q_f32(a.value[0], a.value[1]), vuzp1q_f32(a.value[2], a.value[3])};
        return {vuzp2q_f32(a.value[0], a.value[1]), vuzp2q_f32(a.value[2], a.value[3])};
    }
    INFERNO_INLINE Slice::I32 rows_of(const Lanes<2>::I32& a, int k) {
        if (k == 0) return {vuzp1q_s32(a.value[0], a.value[1]), vuzp1q_s32(a.value[2], a.value[3])};
        return {vuzp2q_s32(a.value[0], a.value[1]), vuzp2q_s32(a.value[2], a.value[3])};
    }

    // A number each of four tokens, of two and the same again, or of one.
    template <int kWidth>
    INFERNO_INLINE float32x4_t few(const float* x) {
        if constexpr (kWidth == 2) return vcombine_f32(vld1_f32(x), vld1_f32(x));
        return kWidth == 1 ? vld1q_dup_f32(x) : vld1q_f32(x);
    }
    template <int kWidth>
    INFERNO_INLINE int32x4_t few(const int32_t* x) {
        if constexpr (kWidth == 2) return vcombine_s32(vld1_s32(x), vld1_s32(x));
        return kWidth == 1 ? vld1q_dup_s32(x) : vld1q_s32(x);
    }
    template <int g>
    INFERNO_INLINE float32x4_t both(float32x4_t four) {
        return vreinterpretq_f32_f64(vdupq_laneq_f64(vreinterpretq_f64_f32(four), g));
    }
    template <int K, int g>
    INFERNO_INLINE auto begin(int32x4_t four) {
        if constexpr (K == 1) {
            return Neon::begin<1, g>(four);
        } else {
            const int32x4_t all = vreinterpretq_s32_s64(vdupq_laneq_s64(vreinterpretq_s64_s32(four), g));
            return Lanes<2>::I32{all, all, all, all};
        }
    }
    template <int K>
    INFERNO_INLINE auto begin(int32_t first, int32_t second) {
        if constexpr (K == 1) {
            return Slice::splat_i32(first);
        } else {
            const int64_t two = (int64_t)((uint64_t)(uint32_t)second << 32 | (uint32_t)first);
            const int32x4_t all = vreinterpretq_s32_s64(vdupq_n_s64(two));
            return Lanes<2>::I32{all, all, all, all};
        }
    }
    template <int K, int g>
    INFERNO_INLINE auto times(const auto& lanes, float32x4_t four) {
        if constexpr (K == 1) {
            return Neon::times<1, g>(lanes, four);
        } else {
            const float32x4_t two = both<g>(four);
            return Lanes<2>::mul(lanes, {two, two, two, two});
        }
    }
    template <int K, int g>
    INFERNO_INLINE auto add_times(const auto& a, const auto& lanes, float32x4_t four) {
        if constexpr (K == 1) {
            return Neon::add_times<1, g>(a, lanes, four);
        } else {
            const float32x4_t two = both<g>(four);
            return Lanes<2>::fma(lanes, {two, two, two, two}, a);
        }
    }

    // A single token is multiplied as if it were two.
    template <int kFirst, int kGroups, int K>
    INFERNO_INLINE auto dot_held(const Held& w, const int8_t* x, int stride, const auto& sum) {
        auto lanes = [&] {
            if constexpr (K == 1)
                return spread<2>(sum);
            else
                return sum;
        }();
        unrolled<kGroups / 4, kFirst / 4>([&](auto half) INFERNO_INLINE_LAMBDA {
            const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(x + 16 * half));
            const int64x2_t second = K == 1 ? first : vreinterpretq_s64_s8(vld1q_s8(x + stride + 16 * half));
            // 8 columns of both tokens, and the next 8.
            const int8x16_t low = vreinterpretq_s8_s64(vzip1q_s64(first, second));
            const int8x16_t high = vreinterpretq_s8_s64(vzip2q_s64(first, second));
            unrolled<4>([&](auto i) INFERNO_INLINE_LAMBDA {
                lanes.value[i] = vmmlaq_s32(lanes.value[i], w.octet[2 * half][i], low);
            });
            unrolled<4>([&](auto i) INFERNO_INLINE_LAMBDA {
                lanes.value[i] = vmmlaq_s32(lanes.value[i], w.octet[2 * half + 1][i], high);
            });
        });
        if constexpr (K == 1)
            return rows_of(lanes, 0);
        else
            return lanes;
    }
};

}  // namespace inferno
