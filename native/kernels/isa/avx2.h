// AVX2 + FMA + F16C: Haswell, Zen, and later. 16 virtual lanes are two 256-bit registers.
#pragma once
#include <immintrin.h>

#include "base/numeric.h"

// Compilers reassociate the integer sums of several tokens into one tree and spill it: an empty
// statement that "changes" a register keeps each sum where it is.
#if defined(__AVX2__)  // not where intrinsics are emulated
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
    static constexpr int kPartTokens = kTokens, kTiles = 1;
    // Tokens from which blocks of 256 columns are taken apart before they are multiplied: at 16, Q4_K gains 4 %,
    // Q6_K 13 %, Q5_K 25 % (docs/lab-notebook.md).
    static constexpr int kExpandsFrom = 16;
    static constexpr bool kHoldsCodes = false;
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
    INFERNO_INLINE F32 load_int8(const int8_t* p) {
        return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p))),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8))))};
    }
    // 2^(exponent - 128); the two smallest are subnormal.
    INFERNO_INLINE __m256 half_powers_of_two(const uint8_t* exponents) {
        const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)exponents));
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
        const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
        const __m256i is_normal = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
        return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal));
    }
    INFERNO_INLINE F32 load_half_powers_of_two(const uint8_t* exponents) {
        return {half_powers_of_two(exponents), half_powers_of_two(exponents + 8)};
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
    INFERNO_INLINE void store_bytes(uint8_t* p, Bytes b) {
        _mm256_storeu_si256((__m256i*)p, b.lo);
        _mm256_storeu_si256((__m256i*)(p + 32), b.hi);
    }
    // Bits of each byte, moved down by `shift` (up, if it is negative) to where `mask` is. No bit of a neighbouring
    // byte may arrive there.
    INFERNO_INLINE __m256i moved(__m256i v, int shift) {
        return shift >= 0 ? _mm256_srli_epi16(v, shift) : _mm256_slli_epi16(v, -shift);
    }
    INFERNO_INLINE Bytes field(Bytes b, int shift, uint8_t mask) {
        const __m256i m = _mm256_set1_epi8((char)mask);
        return {_mm256_and_si256(moved(b.lo, shift), m), _mm256_and_si256(moved(b.hi, shift), m)};
    }
    INFERNO_INLINE Bytes merge(Bytes base, Bytes b, int shift, uint8_t mask) {
        const Bytes bits = field(b, shift, mask);
        return {_mm256_or_si256(base.lo, bits.lo), _mm256_or_si256(base.hi, bits.hi)};
    }
    INFERNO_INLINE Bytes subtract(Bytes b, int8_t x) {
        const __m256i v = _mm256_set1_epi8(x);
        return {_mm256_sub_epi8(b.lo, v), _mm256_sub_epi8(b.hi, v)};
    }
    // table[b], 16 entries.
    INFERNO_INLINE Bytes lookup(Bytes b, const int8_t* table) {
        const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table));
        return {_mm256_shuffle_epi8(t, b.lo), _mm256_shuffle_epi8(t, b.hi)};
    }

    // Four activations, for every row.
    using Four = __m256i;
    INFERNO_INLINE Four broadcast(const int8_t* x4) {
        int32_t four;
        std::memcpy(&four, x4, 4);
        return _mm256_set1_epi32(four);
    }

    struct I32 {
        __m256i lo, hi;
    };
    INFERNO_INLINE I32 zero_i32() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    INFERNO_INLINE I32 load(const int32_t* p) {
        return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))};
    }
    INFERNO_INLINE void store(int32_t* p, I32 x) {
        _mm256_storeu_si256((__m256i*)p, x.lo);
        _mm256_storeu_si256((__m256i*)(p + 8), x.hi);
    }
    INFERNO_INLINE I32 add(I32 a, I32 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
    INFERNO_INLINE I32 shift_left(I32 a, int n) { return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)}; }
    INFERNO_INLINE F32 to_float(I32 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }

    // Sum of products of unsigned codes with int8 (-127..127). An int16 lane takes pairs of products, each at
    // most 2 * 127 * code, so it holds this many groups of four columns (8 for codes of 4 bits, 4 of 5, 2 of 6)
    // and one multiply-add at their end replaces one a group.
    static constexpr bool kSumsStartAnywhere = false;
    static constexpr int code_run(int largest) {
        const int groups = 32767 / (2 * 127 * largest);
        return groups >= 8 ? 8 : groups >= 4 ? 4 : 2;
    }
    struct CodeSum {
        __m256i lo, hi;
    };
    INFERNO_INLINE CodeSum code_sum(int32_t) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    INFERNO_INLINE void dot_codes(CodeSum& sum, Bytes w, Four x) {
        sum.lo = _mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(w.lo, x));
        sum.hi = _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(w.hi, x));
        INFERNO_PIN(sum.lo, sum.hi);
    }
    // The 16 row sums plus `start`.
    INFERNO_INLINE I32 code_total(CodeSum sum, int32_t start) {
        const __m256i ones = _mm256_set1_epi16(1), s = _mm256_set1_epi32(start);
        return {_mm256_add_epi32(_mm256_madd_epi16(sum.lo, ones), s),
                _mm256_add_epi32(_mm256_madd_epi16(sum.hi, ones), s)};
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
    INFERNO_INLINE I32 byte_total(ByteSum sum) { return {sum.lo, sum.hi}; }

    // ---- integer scales: a lane holds four int8, of one row's sub-blocks -------------------------
    // Byte i of each lane, twice as int16, so that the multiply-add that ends a run of int16 sums scales too.
    struct Scale {
        __m256i lo, hi;
    };
    INFERNO_INLINE Scale scale_of(Bytes b, int i) {
        const __m256i place = _mm256_add_epi8(_mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0,
                                                               0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12),
                                              _mm256_set1_epi8((char)i));
        return {_mm256_srai_epi16(_mm256_shuffle_epi8(b.lo, place), 8),
                _mm256_srai_epi16(_mm256_shuffle_epi8(b.hi, place), 8)};
    }
    INFERNO_INLINE I32 scaled(CodeSum sum, Scale s) {
        return {_mm256_madd_epi16(sum.lo, s.lo), _mm256_madd_epi16(sum.hi, s.hi)};
    }
    INFERNO_INLINE I32 scaled(ByteSum sum, Scale s) {
        return {_mm256_mullo_epi32(sum.lo, _mm256_srai_epi32(s.lo, 16)),
                _mm256_mullo_epi32(sum.hi, _mm256_srai_epi32(s.hi, 16))};
    }
    // Bytes 0 and 2, or 1 and 3, of each lane as a pair of int16; acc + pair * pair of int16 at x2.
    struct Pairs {
        __m256i lo, hi;
    };
    INFERNO_INLINE Pairs even_bytes(Bytes b) {
        return {_mm256_srai_epi16(_mm256_slli_epi16(b.lo, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(b.hi, 8), 8)};
    }
    INFERNO_INLINE Pairs odd_bytes(Bytes b) { return {_mm256_srai_epi16(b.lo, 8), _mm256_srai_epi16(b.hi, 8)}; }
    INFERNO_INLINE I32 dot_pairs(I32 acc, Pairs a, const int16_t* x2) {
        int32_t two;
        std::memcpy(&two, x2, 4);
        const __m256i x = _mm256_set1_epi32(two);
        return {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(a.lo, x)),
                _mm256_add_epi32(acc.hi, _mm256_madd_epi16(a.hi, x))};
    }

    // Round 32 floats to the nearest integers, ties to even (|x| <= 127.5); store them as int8, and the sums of
    // the first and the last 16.
    INFERNO_INLINE void store_rounded(int8_t* p, F32 a, F32 b, int32_t (&sums)[2]) {
        const __m256i a0 = _mm256_cvtps_epi32(a.lo), a1 = _mm256_cvtps_epi32(a.hi);
        const __m256i b0 = _mm256_cvtps_epi32(b.lo), b1 = _mm256_cvtps_epi32(b.hi);
        // packs works on 128-bit halves: the quarters come out as {a0 a1 b0 b1} of the lower halves, then of
        // the upper ones; the permutation puts them in order.
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a0, a1), _mm256_packs_epi32(b0, b1));
        _mm256_storeu_si256((__m256i*)p, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
        // {a a b b} of the lower half, then of the upper one; their sum; {a b a b}.
        const __m256i s8 = _mm256_hadd_epi32(_mm256_add_epi32(a0, a1), _mm256_add_epi32(b0, b1));
        const __m128i s4 = _mm_add_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
        _mm_storel_epi64((__m128i*)sums, _mm_hadd_epi32(s4, s4));
    }
    INFERNO_INLINE void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
};

}  // namespace inferno
