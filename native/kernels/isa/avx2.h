// AVX2 + FMA + F16C: Haswell, Zen, and later. 16 virtual lanes are two 256-bit registers.
#pragma once
#include <immintrin.h>

#include "base/numeric.h"

// Compilers reassociate the integer sums of several tokens into one tree and spill it: an empty
// statement that "changes" a register keeps each sum where it is.
#if defined(__GNUC__)
#define INFERNO_PIN(a, b) __asm__("" : "+x"(a), "+x"(b))
#else
#define INFERNO_PIN(a, b)
#endif

namespace inferno {

struct Avx2 {
    static constexpr const char* kName = "avx2";
    // Tokens a register tile holds: 8 int16 sums (2 halves x 4 tokens) + 4 unpacked weights
    // + 2 broadcasts + mask + scratch fill the 16 registers (more gains nothing: docs/lab-notebook.md).
    static constexpr int kTokens = 4;
    static constexpr int kTiles = 1;
    // Rows of attention side by side: six by 16 lanes are 12 accumulators, two registers of keys and one
    // broadcast.
    static constexpr int kGroupRows = 6;

    // ---- f32, 16 lanes -------------------------------------------------------------------------
    struct F32 {
        __m256 lo, hi;
    };
    INFERNO_INLINE F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    INFERNO_INLINE F32 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
    INFERNO_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
    INFERNO_INLINE void store(float* p, F32 x) {
        _mm256_storeu_ps(p, x.lo);
        _mm256_storeu_ps(p + 8, x.hi);
    }
    INFERNO_INLINE F32 load_f16(const f16* p) {
        return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
    }
    INFERNO_INLINE void store_f16(f16* p, F32 x) {
        _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
        _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
    }
    // 16 pairs of bf16, a pair in each 32-bit lane: the first (even) and the second (odd) of each.
    INFERNO_INLINE F32 load_bf16_even(const bf16* p) {
        return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i*)p), 16)),
                _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i*)(p + 16)), 16))};
    }
    INFERNO_INLINE F32 load_bf16_odd(const bf16* p) {
        const __m256i mask = _mm256_set1_epi32((int)0xFFFF0000u);
        return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i*)p), mask)),
                _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i*)(p + 16)), mask))};
    }
    INFERNO_INLINE F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
    INFERNO_INLINE F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
    INFERNO_INLINE F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
    INFERNO_INLINE F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
    INFERNO_INLINE F32 fma(F32 a, F32 b, F32 c) {
        return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
    }
    INFERNO_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
    INFERNO_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
    INFERNO_INLINE F32 negate(F32 a) {
        const __m256 sign = _mm256_set1_ps(-0.0f);
        return {_mm256_xor_ps(sign, a.lo), _mm256_xor_ps(sign, a.hi)};
    }
    INFERNO_INLINE F32 abs(F32 a) {
        const __m256 sign = _mm256_set1_ps(-0.0f);
        return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
    }
    // The fixed tree: lane i + lane i+8, then i+4, i+2, i+1.
    INFERNO_INLINE float reduce_add(F32 x) {
        const __m256 s8 = _mm256_add_ps(x.lo, x.hi);
        const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
        const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
        return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
    }
    INFERNO_INLINE float reduce_max(F32 x) {
        const __m256 s8 = _mm256_max_ps(x.lo, x.hi);
        const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
        const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
        return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
    }
    // The largest |x| of 32 lanes, compared as bits: a NaN is larger than infinity and never lost.
    INFERNO_INLINE float largest_magnitude(F32 a, F32 b) {
        a = abs(a), b = abs(b);
        const __m256i s16 = _mm256_max_epi32(_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi));
        const __m256i t16 = _mm256_max_epi32(_mm256_castps_si256(b.lo), _mm256_castps_si256(b.hi));
        const __m256i s8 = _mm256_max_epi32(s16, t16);
        const __m128i s4 = _mm_max_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
        const __m128i s2 = _mm_max_epi32(s4, _mm_shuffle_epi32(s4, 0x4E));
        return float_of((uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(s2, _mm_shuffle_epi32(s2, 0xB1))));
    }
    // x in lanes below `count`, `other` in the rest.
    INFERNO_INLINE F32 keep_first(F32 x, int count, float other) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256 o = _mm256_set1_ps(other);
        const __m256 lo = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
        const __m256 hi = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), lane));
        return {_mm256_blendv_ps(o, x.lo, lo), _mm256_blendv_ps(o, x.hi, hi)};
    }
    // x where a >= b, else 0.
    INFERNO_INLINE F32 where_ge(F32 x, F32 a, F32 b) {
        return {_mm256_and_ps(x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ)),
                _mm256_and_ps(x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ))};
    }
    // x * 2^n, where n is the integer in the low bits of each lane of t (see body/exp.inl.h).
    INFERNO_INLINE F32 scale_by_low_bits(F32 x, F32 t) {
        return {_mm256_castsi256_ps(
                    _mm256_add_epi32(_mm256_castps_si256(x.lo), _mm256_slli_epi32(_mm256_castps_si256(t.lo), 23))),
                _mm256_castsi256_ps(
                    _mm256_add_epi32(_mm256_castps_si256(x.hi), _mm256_slli_epi32(_mm256_castps_si256(t.hi), 23)))};
    }

    // ---- f32, one lane --------------------------------------------------------------------------
    INFERNO_INLINE float first(F32 x) { return _mm256_cvtss_f32(x.lo); }
    INFERNO_INLINE float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
    INFERNO_INLINE float max1(float a, float b) { return a > b ? a : b; }
    INFERNO_INLINE float fma1(float a, float b, float c) {
        return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
    }

    // ---- int8: 16 rows x 4 consecutive columns -------------------------------------------------
    struct Bytes {
        __m256i lo, hi;
    };
    INFERNO_INLINE Bytes load_bytes(const uint8_t* p) {
        return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
    }
    INFERNO_INLINE Bytes low_nibbles(Bytes b) {
        const __m256i mask = _mm256_set1_epi8(0x0F);
        return {_mm256_and_si256(b.lo, mask), _mm256_and_si256(b.hi, mask)};
    }
    INFERNO_INLINE Bytes high_nibbles(Bytes b) {
        const __m256i mask = _mm256_set1_epi8(0x0F);
        return {_mm256_and_si256(_mm256_srli_epi16(b.lo, 4), mask), _mm256_and_si256(_mm256_srli_epi16(b.hi, 4), mask)};
    }

    // Four activations, for every row.
    using Four = __m256i;
    INFERNO_INLINE Four broadcast(const int8_t* x4) {
        int32_t four;
        std::memcpy(&four, x4, 4);
        return _mm256_set1_epi32(four);
    }

    // Sum of products of nibbles (0..15) with int8 (-127..127) over one block of 32: eight pairs of at
    // most 2*15*127 = 3810 are 30480, so an int16 lane holds the block exactly and one multiply-add
    // at its end replaces eight.
    struct NibbleSum {
        __m256i lo, hi;
    };
    INFERNO_INLINE NibbleSum nibble_sum(int32_t) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    INFERNO_INLINE void dot_nibbles(NibbleSum& sum, Bytes w, Four x) {
        sum.lo = _mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(w.lo, x));
        sum.hi = _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(w.hi, x));
        INFERNO_PIN(sum.lo, sum.hi);
    }
    // The 16 row sums plus `start`, as floats (exact: below 2^24).
    INFERNO_INLINE F32 nibble_total(NibbleSum sum, int32_t start) {
        const __m256i ones = _mm256_set1_epi16(1), s = _mm256_set1_epi32(start);
        return {_mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_madd_epi16(sum.lo, ones), s)),
                _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_madd_epi16(sum.hi, ones), s))};
    }

    // Sum of products of int8 with int8. A pair of products reaches 2*128*127 = 32512: one fits in int16.
    struct ByteSum {
        __m256i lo, hi;
    };
    struct SignedBytes {
        Bytes value, magnitude;
    };
    INFERNO_INLINE SignedBytes signed_bytes(Bytes w) { return {w, {_mm256_abs_epi8(w.lo), _mm256_abs_epi8(w.hi)}}; }
    INFERNO_INLINE ByteSum byte_sum(int32_t) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    INFERNO_INLINE void dot_bytes(ByteSum& sum, SignedBytes w, Four x) {
        const __m256i ones = _mm256_set1_epi16(1);
        const __m256i lo = _mm256_maddubs_epi16(w.magnitude.lo, _mm256_sign_epi8(x, w.value.lo));
        const __m256i hi = _mm256_maddubs_epi16(w.magnitude.hi, _mm256_sign_epi8(x, w.value.hi));
        sum.lo = _mm256_add_epi32(sum.lo, _mm256_madd_epi16(lo, ones));
        sum.hi = _mm256_add_epi32(sum.hi, _mm256_madd_epi16(hi, ones));
        INFERNO_PIN(sum.lo, sum.hi);
    }
    INFERNO_INLINE F32 byte_total(ByteSum sum) { return {_mm256_cvtepi32_ps(sum.lo), _mm256_cvtepi32_ps(sum.hi)}; }

    // Round 32 floats to the nearest integers, ties to even (|x| <= 127.5); store them as int8 and return
    // their sum.
    INFERNO_INLINE int32_t store_rounded(int8_t* p, F32 a, F32 b) {
        const __m256i a0 = _mm256_cvtps_epi32(a.lo), a1 = _mm256_cvtps_epi32(a.hi);
        const __m256i b0 = _mm256_cvtps_epi32(b.lo), b1 = _mm256_cvtps_epi32(b.hi);
        // packs works on 128-bit halves: the quarters come out as {a0 a1 b0 b1} of the lower halves, then of
        // the upper ones; the permutation puts them in order.
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a0, a1), _mm256_packs_epi32(b0, b1));
        _mm256_storeu_si256((__m256i*)p, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
        const __m256i s8 = _mm256_add_epi32(_mm256_add_epi32(a0, a1), _mm256_add_epi32(b0, b1));
        const __m128i s4 = _mm_add_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
        const __m128i s2 = _mm_add_epi32(s4, _mm_shuffle_epi32(s4, 0x4E));
        return _mm_cvtsi128_si32(_mm_add_epi32(s2, _mm_shuffle_epi32(s2, 0xB1)));
    }
    INFERNO_INLINE void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
};

}  // namespace inferno
