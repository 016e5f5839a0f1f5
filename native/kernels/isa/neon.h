// NEON as every 64-bit Arm has it. 16 virtual lanes are four 128-bit registers.
#pragma once
#include <arm_neon.h>

#include "base/numeric.h"

namespace inferno {

// What the loops over registers have in common.
#define INFERNO_EACH_REGISTER(Type, expression)                                             \
    Type out;                                                                               \
    unrolled<kRegisters>([&](auto i) INFERNO_INLINE_LAMBDA { out.value[i] = expression; }); \
    return out

// Lanes of float and of int32: 16 of them, or the 8 of a slice of rows.
template <int kRegisters>
struct NeonLanes {
    static constexpr int kLanes = 4 * kRegisters;

    // ---- f32 -----------------------------------------------------------------------------------
    struct F32 {
        float32x4_t value[kRegisters];
    };
    INFERNO_INLINE F32 splat(float x) { INFERNO_EACH_REGISTER(F32, vdupq_n_f32(x)); }
    INFERNO_INLINE F32 zero() { return splat(0.0f); }
    INFERNO_INLINE F32 load(const float* p) { INFERNO_EACH_REGISTER(F32, vld1q_f32(p + 4 * i)); }
    INFERNO_INLINE void store(float* p, F32 x) {
        unrolled<kRegisters>([&](auto i) INFERNO_INLINE_LAMBDA { vst1q_f32(p + 4 * i, x.value[i]); });
    }
    INFERNO_INLINE F32 mul(F32 a, F32 b) { INFERNO_EACH_REGISTER(F32, vmulq_f32(a.value[i], b.value[i])); }
    INFERNO_INLINE F32 fma(F32 a, F32 b, F32 c) {
        INFERNO_EACH_REGISTER(F32, vfmaq_f32(c.value[i], a.value[i], b.value[i]));
    }

    // ---- bytes: of as many rows, four columns each ----------------------------------------------
    struct Bytes {
        uint8x16_t value[kRegisters];
    };

    // ---- int32 ---------------------------------------------------------------------------------
    struct I32 {
        int32x4_t value[kRegisters];
    };
    INFERNO_INLINE I32 splat_i32(int32_t x) { INFERNO_EACH_REGISTER(I32, vdupq_n_s32(x)); }
    INFERNO_INLINE I32 zero_i32() { return splat_i32(0); }
    INFERNO_INLINE I32 load(const int32_t* p) { INFERNO_EACH_REGISTER(I32, vld1q_s32(p + 4 * i)); }
    INFERNO_INLINE void store(int32_t* p, I32 x) {
        unrolled<kRegisters>([&](auto i) INFERNO_INLINE_LAMBDA { vst1q_s32(p + 4 * i, x.value[i]); });
    }
    INFERNO_INLINE I32 add(I32 a, I32 b) { INFERNO_EACH_REGISTER(I32, vaddq_s32(a.value[i], b.value[i])); }
    INFERNO_INLINE I32 multiply_add(I32 a, I32 b, I32 c) {
        INFERNO_EACH_REGISTER(I32, vmlaq_s32(c.value[i], a.value[i], b.value[i]));
    }
    INFERNO_INLINE I32 shift_left(I32 a, int n) { INFERNO_EACH_REGISTER(I32, a.value[i] << n); }
    INFERNO_INLINE F32 to_float(I32 a) { INFERNO_EACH_REGISTER(F32, vcvtq_f32_s32(a.value[i])); }
};

struct Neon : NeonLanes<4> {
    static constexpr const char* kName = "neon";
    static constexpr int kRegisters = 4;
    // Codes of 8 rows and 32 columns are held in 16 registers while any number of tokens pass by (quant/held.h): what
    // unpacks them costs the less the more these are, and their accumulators are in memory anyway.
    static constexpr int kTokens = 16;
    static constexpr int kPartTokens = kTokens, kTiles = 1;
    static constexpr bool kHoldsCodes = true;
    // Tokens from which blocks of 256 columns are taken apart before they are multiplied, once for all tiles of tokens.
    static constexpr int kExpandsFrom = 4 * kTokens;
    // Rows of attention side by side: six by 16 lanes are 24 accumulators, four registers of keys and one broadcast.
    static constexpr int kGroupRows = 6;

    // ---- f32, 16 lanes -------------------------------------------------------------------------
    INFERNO_INLINE F32 load_f16(const f16* p) {
        INFERNO_EACH_REGISTER(F32, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
    }
    INFERNO_INLINE void store_f16(f16* p, F32 x) {
        unrolled<kRegisters>(
            [&](auto i) INFERNO_INLINE_LAMBDA { vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.value[i]))); });
    }
    INFERNO_INLINE F32 load_int8(const int8_t* p) {
        const int8x16_t q = vld1q_s8(p);
        const int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);
        return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
    }
    // 2^(exponent - 128); the two smallest are subnormal.
    INFERNO_INLINE float32x4_t half_powers_of_two(uint32x4_t e) {
        const uint32x4_t one = vdupq_n_u32(1);
        const uint32x4_t normal = vsubq_u32(e, one) << 23;
        const uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
        return vreinterpretq_f32_u32(vbslq_u32(vcgtq_u32(e, one), normal, subnormal));
    }
    INFERNO_INLINE F32 load_half_powers_of_two(const uint8_t* exponents) {
        const uint8x16_t e = vld1q_u8(exponents);
        const uint16x8_t low = vmovl_u8(vget_low_u8(e)), high = vmovl_u8(vget_high_u8(e));
        return {half_powers_of_two(vmovl_u16(vget_low_u16(low))), half_powers_of_two(vmovl_u16(vget_high_u16(low))),
                half_powers_of_two(vmovl_u16(vget_low_u16(high))), half_powers_of_two(vmovl_u16(vget_high_u16(high)))};
    }
    // 16 pairs of bf16, a pair in each 32-bit lane: the first (even) and the second (odd) of each.
    INFERNO_INLINE F32 load_bf16_even(const bf16* p) {
        INFERNO_EACH_REGISTER(F32, vreinterpretq_f32_u32(vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)) << 16));
    }
    INFERNO_INLINE F32 load_bf16_odd(const bf16* p) {
        const uint32x4_t upper = vdupq_n_u32(0xFFFF0000u);
        INFERNO_EACH_REGISTER(F32,
                              vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)), upper)));
    }
    INFERNO_INLINE F32 add(F32 a, F32 b) { INFERNO_EACH_REGISTER(F32, vaddq_f32(a.value[i], b.value[i])); }
    using NeonLanes<4>::add;
    INFERNO_INLINE F32 sub(F32 a, F32 b) { INFERNO_EACH_REGISTER(F32, vsubq_f32(a.value[i], b.value[i])); }
    INFERNO_INLINE F32 div(F32 a, F32 b) { INFERNO_EACH_REGISTER(F32, vdivq_f32(a.value[i], b.value[i])); }
    // As x86 has them: the second operand wherever the comparison is false, so also beside a NaN.
    INFERNO_INLINE float32x4_t max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
    INFERNO_INLINE F32 max(F32 a, F32 b) { INFERNO_EACH_REGISTER(F32, max(a.value[i], b.value[i])); }
    INFERNO_INLINE F32 min(F32 a, F32 b) {
        INFERNO_EACH_REGISTER(F32, vbslq_f32(vcltq_f32(a.value[i], b.value[i]), a.value[i], b.value[i]));
    }
    INFERNO_INLINE F32 negate(F32 a) { INFERNO_EACH_REGISTER(F32, vnegq_f32(a.value[i])); }
    INFERNO_INLINE F32 abs(F32 a) { INFERNO_EACH_REGISTER(F32, vabsq_f32(a.value[i])); }
    // The fixed tree: lane i + lane i+8, then i+4, i+2, i+1.
    INFERNO_INLINE float reduce_add(F32 x) {
        const float32x4_t s4 = vaddq_f32(vaddq_f32(x.value[0], x.value[2]), vaddq_f32(x.value[1], x.value[3]));
        const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
        return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
    }
    INFERNO_INLINE float reduce_max(F32 x) {
        const float32x4_t s4 = max(max(x.value[0], x.value[2]), max(x.value[1], x.value[3]));
        const float32x2_t low = vget_low_f32(s4), high = vget_high_f32(s4);
        const float32x2_t s2 = vbsl_f32(vcgt_f32(low, high), low, high);
        return max1(vget_lane_f32(s2, 0), vget_lane_f32(s2, 1));
    }
    // The largest |x| of 32 lanes, compared as bits: a NaN is larger than infinity and never lost.
    INFERNO_INLINE float largest_magnitude(F32 a, F32 b) {
        int32x4_t largest = vdupq_n_s32(0);
        for (int i = 0; i < kRegisters; ++i) {
            largest = vmaxq_s32(largest, vreinterpretq_s32_f32(vabsq_f32(a.value[i])));
            largest = vmaxq_s32(largest, vreinterpretq_s32_f32(vabsq_f32(b.value[i])));
        }
        return float_of((uint32_t)vmaxvq_s32(largest));
    }
    // x in lanes below `count`, `other` in the rest.
    INFERNO_INLINE F32 keep_first(F32 x, int count, float other) {
        const int32_t numbers[4] = {0, 1, 2, 3};
        const int32x4_t lanes = vld1q_s32(numbers);
        const float32x4_t o = vdupq_n_f32(other);
        INFERNO_EACH_REGISTER(F32, vbslq_f32(vcgtq_s32(vdupq_n_s32(count - 4 * i), lanes), x.value[i], o));
    }
    // x where a >= b, else 0.
    INFERNO_INLINE F32 where_ge(F32 x, F32 a, F32 b) {
        INFERNO_EACH_REGISTER(F32, vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x.value[i]),
                                                                   vcgeq_f32(a.value[i], b.value[i]))));
    }
    // x * 2^n, where n is the integer in the low bits of each lane of t (see body/exp.inl.h).
    INFERNO_INLINE F32 scale_by_low_bits(F32 x, F32 t) {
        INFERNO_EACH_REGISTER(F32, vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.value[i]),
                                                                   vreinterpretq_s32_f32(t.value[i]) << 23)));
    }

    // ---- f32, one lane --------------------------------------------------------------------------
    INFERNO_INLINE float first(F32 x) { return vgetq_lane_f32(x.value[0], 0); }
    INFERNO_INLINE float sqrt(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
    INFERNO_INLINE float max1(float a, float b) { return a > b ? a : b; }
    INFERNO_INLINE float fma1(float a, float b, float c) {
        return vget_lane_f32(vfma_f32(vdup_n_f32(c), vdup_n_f32(a), vdup_n_f32(b)), 0);
    }

    // ---- int8: 16 rows x 4 consecutive columns -------------------------------------------------
    INFERNO_INLINE Bytes load_bytes(const uint8_t* p) { INFERNO_EACH_REGISTER(Bytes, vld1q_u8(p + 16 * i)); }
    INFERNO_INLINE void store_bytes(uint8_t* p, Bytes b) {
        unrolled<kRegisters>([&](auto i) INFERNO_INLINE_LAMBDA { vst1q_u8(p + 16 * i, b.value[i]); });
    }
    // Bits of each byte, moved down by `shift` (up, if it is negative) to where `mask` is.
    INFERNO_INLINE uint8x16_t field(uint8x16_t b, int shift, uint8_t mask) {
        const uint8x16_t moved = shift > 0 ? b >> shift : shift < 0 ? b << -shift : b;
        const int arriving = (shift > 0 ? 0xFF >> shift : 0xFF << -shift) & 0xFF;
        return arriving == mask ? moved : vandq_u8(moved, vdupq_n_u8(mask));
    }
    INFERNO_INLINE Bytes field(Bytes b, int shift, uint8_t mask) {
        INFERNO_EACH_REGISTER(Bytes, field(b.value[i], shift, mask));
    }
    INFERNO_INLINE Bytes merge(Bytes base, Bytes b, int shift, uint8_t mask) {
        INFERNO_EACH_REGISTER(Bytes, vorrq_u8(base.value[i], field(b.value[i], shift, mask)));
    }
    INFERNO_INLINE Bytes subtract(Bytes b, int8_t x) {
        INFERNO_EACH_REGISTER(Bytes, vsubq_u8(b.value[i], vdupq_n_u8((uint8_t)x)));
    }
    // table[b], 16 entries.
    INFERNO_INLINE Bytes lookup(Bytes b, const int8_t* table) {
        const int8x16_t entries = vld1q_s8(table);
        INFERNO_EACH_REGISTER(Bytes, vreinterpretq_u8_s8(vqtbl1q_s8(entries, b.value[i])));
    }

    // ---- slices: 8 rows, whose codes stay in registers ------------------------------------------
    using Slice = NeonLanes<2>;
    static constexpr int kSlices = 2;
    INFERNO_INLINE Slice::Bytes slice(const Bytes& b, int s) { return {b.value[2 * s], b.value[2 * s + 1]}; }
    INFERNO_INLINE Slice::F32 slice(F32 x, int s) { return {x.value[2 * s], x.value[2 * s + 1]}; }
    INFERNO_INLINE Slice::I32 slice(I32 x, int s) { return {x.value[2 * s], x.value[2 * s + 1]}; }

    // 32 columns in eight groups of four; all codes fit int8.
    struct Held {
        int8x16_t group[8][2];
    };
    INFERNO_INLINE Held hold(const Slice::Bytes (&groups)[8]) {
        Held out;
        unrolled<8>([&](auto g) INFERNO_INLINE_LAMBDA {
            out.group[g][0] = vreinterpretq_s8_u8(groups[g].value[0]);
            out.group[g][1] = vreinterpretq_s8_u8(groups[g].value[1]);
        });
        return out;
    }

    // What follows is not begun before, as far as the compiler knows: one that interleaves tokens spills the codes.
    INFERNO_INLINE void in_order() { __asm__ volatile(""); }
    // What memory held is not known any more.
    INFERNO_INLINE void forget() { __asm__ volatile("" : : : "memory"); }

    // Lanes of 8 rows and K tokens: here of one, in the order of rows.
    static constexpr int kTogether = 1;
    template <int K>
    using Lanes = NeonLanes<2 * K>;
    template <int K>
    INFERNO_INLINE auto spread(const auto& rows) {
        return rows;
    }
    INFERNO_INLINE auto rows_of(const auto& lanes, int) { return lanes; }

    // A number each of four tokens, or of one.
    template <int kWidth>
    INFERNO_INLINE float32x4_t few(const float* x) {
        return kWidth == 1 ? vld1q_dup_f32(x) : vld1q_f32(x);
    }
    template <int kWidth>
    INFERNO_INLINE int32x4_t few(const int32_t* x) {
        return kWidth == 1 ? vld1q_dup_s32(x) : vld1q_s32(x);
    }
    // Lanes that begin at the numbers of tokens g ..; lanes times these, also added to `a`.
    template <int K, int g>
    INFERNO_INLINE Slice::I32 begin(int32x4_t four) {
        const int32x4_t all = vdupq_laneq_s32(four, g);
        return {all, all};
    }
    template <int K>
    INFERNO_INLINE Slice::I32 begin(int32_t first, int32_t) {
        return Slice::splat_i32(first);
    }
    template <int K, int g>
    INFERNO_INLINE Slice::F32 times(Slice::F32 lanes, float32x4_t four) {
        return {vmulq_laneq_f32(lanes.value[0], four, g), vmulq_laneq_f32(lanes.value[1], four, g)};
    }
    template <int K, int g>
    INFERNO_INLINE Slice::F32 add_times(Slice::F32 a, Slice::F32 lanes, float32x4_t four) {
        return {vfmaq_laneq_f32(a.value[0], lanes.value[0], four, g),
                vfmaq_laneq_f32(a.value[1], lanes.value[1], four, g)};
    }

    // sum + products with the activations of kGroups groups from kFirst on; x: all 32 of a token, the next one's
    // `stride` behind. An int16 takes two products of bytes (2 * 128 * 127), which a pairwise sum then widens.
    template <int kFirst, int kGroups, int K>
    INFERNO_INLINE Slice::I32 dot_held(const Held& w, const int8_t* x, int, Slice::I32 sum) {
        int32x4_t part[2][2] = {{vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}};
        unrolled<kGroups / 2>([&](auto pair) INFERNO_INLINE_LAMBDA {
            constexpr int g = kFirst + 2 * pair;
            const int8x16_t x0 = four(x + 4 * g), x1 = four(x + 4 * g + 4);
            unrolled<2>([&](auto i) INFERNO_INLINE_LAMBDA {
                const int8x16_t w0 = w.group[g][i], w1 = w.group[g + 1][i];
                const int16x8_t low = vmull_s8(vget_low_s8(w0), vget_low_s8(x0)), high = vmull_high_s8(w0, x0);
                part[i][0] = vpadalq_s16(part[i][0], vmlal_s8(low, vget_low_s8(w1), vget_low_s8(x1)));
                part[i][1] = vpadalq_s16(part[i][1], vmlal_high_s8(high, w1, x1));
            });
        });
        unrolled<2>([&](auto i) INFERNO_INLINE_LAMBDA {
            sum.value[i] = vaddq_s32(sum.value[i], vpaddq_s32(part[i][0], part[i][1]));
        });
        return sum;
    }
    INFERNO_INLINE int8x16_t four(const int8_t* x) {
        int32_t bits;
        std::memcpy(&bits, x, 4);
        return vreinterpretq_s8_s32(vdupq_n_s32(bits));
    }

    // ---- integer scales: a lane holds four int8, of one row's sub-blocks -------------------------
    // Byte i of each lane.
    using Scale = I32;
    INFERNO_INLINE Scale scale_of(Bytes b, int k) {
        INFERNO_EACH_REGISTER(I32, vreinterpretq_s32_u8(b.value[i]) << (24 - 8 * k) >> 24);
    }
    // Bytes 0 and 2, or 1 and 3, of each lane as two int16, one beside those of the other rows of a slice: which takes
    // numbers of a token as elements. dot_pairs sums such factors of a slice times pairs of int16 at x.
    struct Pairs {
        int16x8_t value[kRegisters];  // of a slice: the first ones, the second ones
    };
    INFERNO_INLINE Pairs pairs(const int16x8_t (&b)[kRegisters]) {
        return {vuzp1q_s16(b[0], b[1]), vuzp2q_s16(b[0], b[1]), vuzp1q_s16(b[2], b[3]), vuzp2q_s16(b[2], b[3])};
    }
    INFERNO_INLINE Pairs even_bytes(Bytes b) {
        int16x8_t even[kRegisters];
        unrolled<kRegisters>([&](auto i)
                                 INFERNO_INLINE_LAMBDA { even[i] = vreinterpretq_s16_u8(b.value[i]) << 8 >> 8; });
        return pairs(even);
    }
    INFERNO_INLINE Pairs odd_bytes(Bytes b) {
        int16x8_t odd[kRegisters];
        unrolled<kRegisters>([&](auto i) INFERNO_INLINE_LAMBDA { odd[i] = vreinterpretq_s16_u8(b.value[i]) >> 8; });
        return pairs(odd);
    }
    template <int kPairs>
    struct Factors {
        int16x8_t value[kPairs][2];
    };
    template <int kPairs>
    INFERNO_INLINE Factors<kPairs> factors_of(const Pairs* factors, int s) {
        Factors<kPairs> out;
        unrolled<kPairs>([&](auto i) INFERNO_INLINE_LAMBDA {
            out.value[i][0] = factors[i].value[2 * s], out.value[i][1] = factors[i].value[2 * s + 1];
        });
        return out;
    }
    template <int kPairs>
    INFERNO_INLINE Slice::I32 dot_pairs(const Factors<kPairs>& factors, const int16_t* x) {
        Slice::I32 sum = Slice::zero_i32();
        unrolled<kPairs / 4>([&](auto word) INFERNO_INLINE_LAMBDA {
            const int16x8_t eight = vld1q_s16(x + 8 * word);
            unrolled<8>([&](auto i) INFERNO_INLINE_LAMBDA {
                const int16x8_t f = factors.value[4 * word + i / 2][i % 2];
                sum.value[0] = vmlal_laneq_s16(sum.value[0], vget_low_s16(f), eight, i);
                sum.value[1] = vmlal_high_laneq_s16(sum.value[1], f, eight, i);
            });
        });
        return sum;
    }

    // Round 32 floats to the nearest integers, ties to even (|x| <= 127.5); store them as int8, and the sums of
    // the first and the last 16.
    INFERNO_INLINE int32_t store_rounded(int8_t* p, F32 x) {
        int32x4_t q[4];
        for (int i = 0; i < 4; ++i) q[i] = vcvtnq_s32_f32(x.value[i]);
        const int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
        const int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
        vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
        return vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
    }
    INFERNO_INLINE void store_rounded(int8_t* p, F32 a, F32 b, int32_t (&sums)[2]) {
        sums[0] = store_rounded(p, a);
        sums[1] = store_rounded(p + 16, b);
    }
    INFERNO_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
};

}  // namespace inferno
