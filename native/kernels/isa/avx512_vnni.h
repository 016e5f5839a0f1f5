// AVX-512 (F, BW, VL) with VNNI: Ice Lake, Zen 4, and later. 16 virtual lanes are one 512-bit register.
#pragma once
#include <immintrin.h>

#include "base/numeric.h"

namespace inferno {

struct Avx512Vnni {
    static constexpr const char* kName = "avx512_vnni";
    // 16 sums, 2 or 4 unpacked weights, a mask and 2 broadcasts are at most 23 of 32 registers. The sums are of one row
    // tile and all tokens where these are few and wait for the weights, which are then unpacked once; or of two row
    // tiles and half of the tokens where these are many, for broadcasts that are shared gain 1 to 4 %. On Zen 4 eight
    // dot products and the float step take ten cycles of the multipliers, whatever the tile (docs/lab-notebook.md).
    static constexpr int kTokens = 16;
    static constexpr int kPartTokens = 8, kTiles = 2;
    // Tokens from which blocks of 256 columns are taken apart before they are multiplied: at 64, Q6_K gains 3 %
    // and Q4_K loses 1 % (docs/lab-notebook.md).
    static constexpr int kExpandsFrom = 96;
    static constexpr bool kHoldsCodes = false;
    // Rows of attention side by side: of 32 registers, 12 are accumulators; four would hide the latency.
    static constexpr int kGroupRows = 12;

    // ---- f32, 16 lanes -------------------------------------------------------------------------
    using F32 = __m512;
    INFERNO_INLINE F32 zero() { return _mm512_setzero_ps(); }
    INFERNO_INLINE F32 splat(float x) { return _mm512_set1_ps(x); }
    INFERNO_INLINE F32 load(const float* p) { return _mm512_loadu_ps(p); }
    INFERNO_INLINE void store(float* p, F32 x) { _mm512_storeu_ps(p, x); }
    INFERNO_INLINE F32 load_f16(const f16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
    INFERNO_INLINE void store_f16(f16* p, F32 x) {
        _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    INFERNO_INLINE F32 load_int8(const int8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
    }
    // 2^(exponent - 128); the two smallest are subnormal.
    INFERNO_INLINE F32 load_half_powers_of_two(const uint8_t* exponents) {
        const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)exponents));
        const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
        const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
        const __mmask16 is_normal = _mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(1));
        return _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_normal, subnormal, normal));
    }
    // 16 pairs of bf16, a pair in each 32-bit lane: the first (even) and the second (odd) of each.
    INFERNO_INLINE F32 load_bf16_even(const bf16* p) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
    }
    INFERNO_INLINE F32 load_bf16_odd(const bf16* p) {
        return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xFFFF0000u)));
    }
    INFERNO_INLINE F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
    INFERNO_INLINE F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
    INFERNO_INLINE F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
    INFERNO_INLINE F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
    INFERNO_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
    INFERNO_INLINE F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
    INFERNO_INLINE F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
    INFERNO_INLINE F32 negate(F32 a) {
        return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32((int)0x80000000u)));
    }
    INFERNO_INLINE F32 abs(F32 a) { return _mm512_abs_ps(a); }
    // The fixed tree: lane i + lane i+8, then i+4, i+2, i+1.
    INFERNO_INLINE __m256 upper(F32 x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }
    INFERNO_INLINE float reduce_add(F32 x) {
        const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(x), upper(x));
        const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
        const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
        return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
    }
    INFERNO_INLINE float reduce_max(F32 x) {
        const __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(x), upper(x));
        const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
        const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
        return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
    }
    // The largest |x| of 32 lanes, compared as bits: a NaN is larger than infinity and never lost.
    INFERNO_INLINE float largest_magnitude(F32 a, F32 b) {
        const __m512i s16 = _mm512_max_epi32(_mm512_castps_si512(abs(a)), _mm512_castps_si512(abs(b)));
        const __m256i s8 = _mm256_max_epi32(_mm512_castsi512_si256(s16), _mm512_extracti64x4_epi64(s16, 1));
        const __m128i s4 = _mm_max_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
        const __m128i s2 = _mm_max_epi32(s4, _mm_shuffle_epi32(s4, 0x4E));
        return float_of((uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(s2, _mm_shuffle_epi32(s2, 0xB1))));
    }
    // x in lanes below `count`, `other` in the rest.
    INFERNO_INLINE F32 keep_first(F32 x, int count, float other) {
        const __mmask16 keep = count >= 16 ? 0xFFFF : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
        return _mm512_mask_blend_ps(keep, _mm512_set1_ps(other), x);
    }
    // x where a >= b, else 0.
    INFERNO_INLINE F32 where_ge(F32 x, F32 a, F32 b) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), x);
    }
    // x * 2^n, where n is the integer in the low bits of each lane of t (see body/exp.inl.h).
    INFERNO_INLINE F32 scale_by_low_bits(F32 x, F32 t) {
        return _mm512_castsi512_ps(
            _mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
    }

    // ---- f32, one lane --------------------------------------------------------------------------
    INFERNO_INLINE float first(F32 x) { return _mm512_cvtss_f32(x); }
    INFERNO_INLINE float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
    INFERNO_INLINE float max1(float a, float b) { return a > b ? a : b; }
    INFERNO_INLINE float fma1(float a, float b, float c) {
        return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
    }

    // ---- int8: 16 rows x 4 consecutive columns -------------------------------------------------
    using Bytes = __m512i;
    INFERNO_INLINE Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
    INFERNO_INLINE void store_bytes(uint8_t* p, Bytes b) { _mm512_storeu_si512(p, b); }
    // Bits of each byte, moved down by `shift` (up, if it is negative) to where `mask` is. No bit of a neighbouring
    // byte may arrive there.
    INFERNO_INLINE __m512i moved(__m512i v, int shift) {
        return shift >= 0 ? _mm512_srli_epi16(v, (unsigned)shift) : _mm512_slli_epi16(v, (unsigned)-shift);
    }
    INFERNO_INLINE Bytes field(Bytes b, int shift, uint8_t mask) {
        return _mm512_and_si512(moved(b, shift), _mm512_set1_epi8((char)mask));
    }
    INFERNO_INLINE Bytes merge(Bytes base, Bytes b, int shift, uint8_t mask) {
        return _mm512_ternarylogic_epi32(base, moved(b, shift), _mm512_set1_epi8((char)mask), 0xF8);  // a | (b & c)
    }
    INFERNO_INLINE Bytes subtract(Bytes b, int8_t x) { return _mm512_sub_epi8(b, _mm512_set1_epi8(x)); }
    // table[b], 16 entries.
    INFERNO_INLINE Bytes lookup(Bytes b, const int8_t* table) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table)), b);
    }

    // Four activations, for every row.
    using Four = __m512i;
    INFERNO_INLINE Four broadcast(const int8_t* x4) {
        int32_t four;
        std::memcpy(&four, x4, 4);
        return _mm512_set1_epi32(four);
    }

    using I32 = __m512i;
    INFERNO_INLINE I32 zero_i32() { return _mm512_setzero_si512(); }
    INFERNO_INLINE I32 load(const int32_t* p) { return _mm512_loadu_si512(p); }
    INFERNO_INLINE void store(int32_t* p, I32 x) { _mm512_storeu_si512(p, x); }
    INFERNO_INLINE I32 add(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
    INFERNO_INLINE I32 shift_left(I32 a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
    INFERNO_INLINE F32 to_float(I32 a) { return _mm512_cvtepi32_ps(a); }

    // vpdpbusd sums four products of unsigned weights and signed activations into each 32-bit lane, so the
    // correction of the weights' offset is a start value and costs nothing.
    static constexpr bool kSumsStartAnywhere = true;
    static constexpr int code_run(int) { return 8; }
    using CodeSum = __m512i;
    INFERNO_INLINE CodeSum code_sum(int32_t start) { return _mm512_set1_epi32(start); }
    INFERNO_INLINE void dot_codes(CodeSum& sum, Bytes w, Four x) { sum = _mm512_dpbusd_epi32(sum, w, x); }
    INFERNO_INLINE I32 code_total(CodeSum sum, int32_t) { return sum; }

    // Signed weights plus 128 are unsigned; the start value takes 128 times the activations' sum away again.
    using ByteSum = __m512i;
    using SignedBytes = __m512i;
    INFERNO_INLINE SignedBytes signed_bytes(Bytes w) { return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80)); }
    INFERNO_INLINE ByteSum byte_sum(int32_t bias) { return _mm512_set1_epi32(bias * 16); }  // -128 = 16 * -8
    INFERNO_INLINE void dot_bytes(ByteSum& sum, SignedBytes w, Four x) { sum = _mm512_dpbusd_epi32(sum, w, x); }
    INFERNO_INLINE I32 byte_total(ByteSum sum) { return sum; }

    // ---- integer scales: a lane holds four int8, of one row's sub-blocks -------------------------
    // Byte i of each lane.
    using Scale = __m512i;
    INFERNO_INLINE Scale scale_of(Bytes b, int i) {
        return _mm512_srai_epi32(_mm512_slli_epi32(b, (unsigned)(24 - 8 * i)), 24);
    }
    INFERNO_INLINE I32 scaled(I32 sum, Scale s) { return _mm512_mullo_epi32(sum, s); }
    // Bytes 0 and 2, or 1 and 3, of each lane as a pair of int16; acc + pair * pair of int16 at x2.
    using Pairs = __m512i;
    INFERNO_INLINE Pairs even_bytes(Bytes b) { return _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8); }
    INFERNO_INLINE Pairs odd_bytes(Bytes b) { return _mm512_srai_epi16(b, 8); }
    INFERNO_INLINE I32 dot_pairs(I32 acc, Pairs a, const int16_t* x2) {
        int32_t two;
        std::memcpy(&two, x2, 4);
        return _mm512_dpwssd_epi32(acc, a, _mm512_set1_epi32(two));
    }

    // Round 32 floats to the nearest integers, ties to even (|x| <= 127.5); store them as int8, and the sums of
    // the first and the last 16.
    INFERNO_INLINE void store_rounded(int8_t* p, F32 a, F32 b, int32_t (&sums)[2]) {
        const __m512i x = _mm512_cvtps_epi32(a), y = _mm512_cvtps_epi32(b);
        _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(x));
        _mm_storeu_si128((__m128i*)(p + 16), _mm512_cvtsepi32_epi8(y));
        const __m256i x8 = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
        const __m256i y8 = _mm256_add_epi32(_mm512_castsi512_si256(y), _mm512_extracti64x4_epi64(y, 1));
        // {x x y y} of the lower half, then of the upper one; their sum; {x y x y}.
        const __m256i s8 = _mm256_hadd_epi32(x8, y8);
        const __m128i s4 = _mm_add_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
        _mm_storel_epi64((__m128i*)sums, _mm_hadd_epi32(s4, s4));
    }
    INFERNO_INLINE void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
};

}  // namespace inferno
