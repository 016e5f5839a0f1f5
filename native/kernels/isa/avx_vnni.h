// AVX2 with AVX-VNNI, 256 bits wide: Alder Lake and later. Floats, unpacking and tiles are those of AVX2; dot
// products of bytes go straight to 32 bits.
#pragma once
#include "kernels/isa/avx2.h"

namespace inferno {

struct AvxVnni : Avx2 {
    static constexpr const char* kName = "avx_vnni";
    // 8 sums (2 halves x 4 tokens), 4 unpacked weights, a mask and a broadcast are 14 of 16 registers.
    static constexpr int kTokens = 4;
    static constexpr int kPartTokens = kTokens, kTiles = 1;

    // vpdpbusd sums four products of unsigned weights and signed activations into each 32-bit lane, so the
    // correction of the weights' offset is a start value and costs nothing.
    static constexpr bool kSumsStartAnywhere = true;
    static constexpr int code_run(int) { return 8; }
    using CodeSum = I32;
    INFERNO_INLINE CodeSum code_sum(int32_t start) { return {_mm256_set1_epi32(start), _mm256_set1_epi32(start)}; }
    INFERNO_INLINE void dot_codes(CodeSum& sum, Bytes w, Four x) {
        sum.lo = _mm256_dpbusd_avx_epi32(sum.lo, w.lo, x);
        sum.hi = _mm256_dpbusd_avx_epi32(sum.hi, w.hi, x);
    }
    INFERNO_INLINE I32 code_total(CodeSum sum, int32_t) { return sum; }

    // Signed weights plus 128 are unsigned; the start value takes 128 times the activations' sum away again.
    using ByteSum = I32;
    using SignedBytes = Bytes;
    INFERNO_INLINE SignedBytes signed_bytes(Bytes w) {
        const __m256i high = _mm256_set1_epi8((char)0x80);
        return {_mm256_xor_si256(w.lo, high), _mm256_xor_si256(w.hi, high)};
    }
    INFERNO_INLINE ByteSum byte_sum(int32_t bias) { return code_sum(bias * 16); }  // -128 = 16 * -8
    INFERNO_INLINE void dot_bytes(ByteSum& sum, SignedBytes w, Four x) { dot_codes(sum, w, x); }
    INFERNO_INLINE I32 byte_total(ByteSum sum) { return sum; }

    // ---- integer scales: a lane holds four int8, of one row's sub-blocks -------------------------
    // Byte i of each lane.
    using Scale = I32;
    INFERNO_INLINE Scale scale_of(Bytes b, int i) {
        return {_mm256_srai_epi32(_mm256_slli_epi32(b.lo, 24 - 8 * i), 24),
                _mm256_srai_epi32(_mm256_slli_epi32(b.hi, 24 - 8 * i), 24)};
    }
    INFERNO_INLINE I32 scaled(I32 sum, Scale s) {
        return {_mm256_mullo_epi32(sum.lo, s.lo), _mm256_mullo_epi32(sum.hi, s.hi)};
    }
    INFERNO_INLINE I32 dot_pairs(I32 acc, Pairs a, const int16_t* x2) {
        int32_t two;
        std::memcpy(&two, x2, 4);
        const __m256i x = _mm256_set1_epi32(two);
        return {_mm256_dpwssd_avx_epi32(acc.lo, a.lo, x), _mm256_dpwssd_avx_epi32(acc.hi, a.hi, x)};
    }
};

}  // namespace inferno
