// The intrinsics of x86 that the kernels use, in plain C++, by the operations of Intel's Intrinsics Guide.
// Found in place of the compiler's own header in objects that tests alone are built from (native/CMakeLists.txt).
#pragma once
#include "lanes.h"

struct __m128i {
    uint8_t byte[16];
};
struct __m256i {
    uint8_t byte[32];
};
struct __m512i {
    uint8_t byte[64];
};
struct __m128 {
    uint8_t byte[16];
};
struct __m256 {
    uint8_t byte[32];
};
struct __m512 {
    uint8_t byte[64];
};
struct __m256d {
    uint8_t byte[32];
};
struct __m512d {
    uint8_t byte[64];
};
using __mmask16 = uint16_t;

enum { _MM_FROUND_TO_NEAREST_INT = 0, _MM_HINT_T0 = 3, _CMP_GE_OQ = 0x1D };

inline void _mm_prefetch(const char*, int) {}

// ---- what comes in two or three widths: intrinsics _mm256_… with __m256, and so on ------------------

#define EMULATED_OF_WIDTH(W, F, I)                                                                                    \
    EMULATED F W##_setzero_ps() { return F{}; }                                                                       \
    EMULATED F W##_set1_ps(float x) {                                                                                 \
        return emulation::each<float, F>([=](int) { return x; });                                                     \
    }                                                                                                                 \
    EMULATED F W##_loadu_ps(const float* p) { return emulation::load<F>(p); }                                         \
    EMULATED void W##_storeu_ps(float* p, F x) { std::memcpy(p, &x, sizeof x); }                                      \
    EMULATED F W##_add_ps(F a, F b) {                                                                                 \
        return emulation::map<float>(a, b, [](float x, float y) { return x + y; });                                   \
    }                                                                                                                 \
    EMULATED F W##_sub_ps(F a, F b) {                                                                                 \
        return emulation::map<float>(a, b, [](float x, float y) { return x - y; });                                   \
    }                                                                                                                 \
    EMULATED F W##_mul_ps(F a, F b) {                                                                                 \
        return emulation::map<float>(a, b, [](float x, float y) { return x * y; });                                   \
    }                                                                                                                 \
    EMULATED F W##_div_ps(F a, F b) {                                                                                 \
        return emulation::map<float>(a, b, [](float x, float y) { return x / y; });                                   \
    }                                                                                                                 \
    /* The second operand wherever the comparison is false: if one is a NaN, or both are zeros. */                    \
    EMULATED F W##_max_ps(F a, F b) {                                                                                 \
        return emulation::map<float>(a, b, [](float x, float y) { return x > y ? x : y; });                           \
    }                                                                                                                 \
    EMULATED F W##_min_ps(F a, F b) {                                                                                 \
        return emulation::map<float>(a, b, [](float x, float y) { return x < y ? x : y; });                           \
    }                                                                                                                 \
    EMULATED F W##_fmadd_ps(F a, F b, F c) {                                                                          \
        const emulation::Lanes<float, F> x(a), y(b), z(c);                                                            \
        return emulation::each<float, F>([&](int i) { return std::fma(x[i], y[i], z[i]); });                          \
    }                                                                                                                 \
    EMULATED float W##_cvtss_f32(F x) { return emulation::Lanes<float, F>(x)[0]; }                                    \
    EMULATED I W##_cvtps_epi32(F a) {                                                                                 \
        const emulation::Lanes<float, F> x(a);                                                                        \
        return emulation::each<int32_t, I>([&](int i) {                                                               \
            const float rounded = std::nearbyint(x[i]);                                                               \
            return rounded >= -0x1p31f && rounded < 0x1p31f ? (int32_t)rounded : INT32_MIN;                           \
        });                                                                                                           \
    }                                                                                                                 \
    EMULATED F W##_cvtepi32_ps(I a) {                                                                                 \
        const emulation::Lanes<int32_t, I> x(a);                                                                      \
        return emulation::each<float, F>([&](int i) { return (float)x[i]; });                                         \
    }                                                                                                                 \
    EMULATED I W##_set1_epi8(char x) {                                                                                \
        return emulation::each<int8_t, I>([=](int) { return x; });                                                    \
    }                                                                                                                 \
    EMULATED I W##_set1_epi16(short x) {                                                                              \
        return emulation::each<int16_t, I>([=](int) { return x; });                                                   \
    }                                                                                                                 \
    EMULATED I W##_set1_epi32(int x) {                                                                                \
        return emulation::each<int32_t, I>([=](int) { return x; });                                                   \
    }                                                                                                                 \
    EMULATED I W##_add_epi8(I a, I b) {                                                                               \
        return emulation::map<uint8_t>(a, b, [](uint8_t x, uint8_t y) { return x + y; });                             \
    }                                                                                                                 \
    EMULATED I W##_sub_epi8(I a, I b) {                                                                               \
        return emulation::map<uint8_t>(a, b, [](uint8_t x, uint8_t y) { return x - y; });                             \
    }                                                                                                                 \
    EMULATED I W##_add_epi16(I a, I b) {                                                                              \
        return emulation::map<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return x + y; });                          \
    }                                                                                                                 \
    EMULATED I W##_add_epi32(I a, I b) {                                                                              \
        return emulation::map<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x + y; });                          \
    }                                                                                                                 \
    EMULATED I W##_sub_epi32(I a, I b) {                                                                              \
        return emulation::map<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x - y; });                          \
    }                                                                                                                 \
    EMULATED I W##_mullo_epi32(I a, I b) {                                                                            \
        return emulation::map<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x * y; });                          \
    }                                                                                                                 \
    EMULATED I W##_max_epi32(I a, I b) {                                                                              \
        return emulation::map<int32_t>(a, b, [](int32_t x, int32_t y) { return x > y ? x : y; });                     \
    }                                                                                                                 \
    EMULATED I W##_sllv_epi32(I a, I b) {                                                                             \
        return emulation::map<uint32_t>(a, b, [](uint32_t x, uint32_t n) { return n < 32 ? x << n : 0; });            \
    }                                                                                                                 \
    EMULATED I W##_slli_epi16(I a, int n) {                                                                           \
        return emulation::map<uint16_t>(a, [=](uint16_t x) { return x << n; });                                       \
    }                                                                                                                 \
    EMULATED I W##_srli_epi16(I a, int n) {                                                                           \
        return emulation::map<uint16_t>(a, [=](uint16_t x) { return x >> n; });                                       \
    }                                                                                                                 \
    EMULATED I W##_srai_epi16(I a, int n) {                                                                           \
        return emulation::map<int16_t>(a, [=](int16_t x) { return x >> n; });                                         \
    }                                                                                                                 \
    EMULATED I W##_slli_epi32(I a, int n) {                                                                           \
        return emulation::map<uint32_t>(a, [=](uint32_t x) { return x << n; });                                       \
    }                                                                                                                 \
    EMULATED I W##_srai_epi32(I a, int n) {                                                                           \
        return emulation::map<int32_t>(a, [=](int32_t x) { return x >> n; });                                         \
    }                                                                                                                 \
    /* Within 128 bits; a control byte with its highest bit set gives zero. */                                        \
    EMULATED I W##_shuffle_epi8(I a, I control) {                                                                     \
        return emulation::each<uint8_t, I>([&](int i) {                                                               \
            const int c = control.byte[i];                                                                            \
            return c & 0x80 ? 0 : a.byte[i / 16 * 16 + (c & 15)];                                                     \
        });                                                                                                           \
    }                                                                                                                 \
    /* Pairs of products of unsigned and signed bytes, saturated to 16 bits. */                                       \
    EMULATED I W##_maddubs_epi16(I a, I b) {                                                                          \
        const emulation::Lanes<uint8_t, I> x(a);                                                                      \
        const emulation::Lanes<int8_t, I> y(b);                                                                       \
        return emulation::each<int16_t, I>(                                                                           \
            [&](int i) { return emulation::saturated<int16_t>(x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1]); }); \
    }                                                                                                                 \
    EMULATED I W##_madd_epi16(I a, I b) {                                                                             \
        const emulation::Lanes<int16_t, I> x(a), y(b);                                                                \
        return emulation::each<int32_t, I>([&](int i) {                                                               \
            const int64_t sum = (int64_t)x[2 * i] * y[2 * i] + (int64_t)x[2 * i + 1] * y[2 * i + 1];                  \
            return emulation::wrapped<int32_t>(sum);                                                                  \
        });                                                                                                           \
    }                                                                                                                 \
    /* Four products of unsigned and signed bytes, added to each 32-bit lane. */                                      \
    EMULATED I W##_dpbusd_epi32(I sum, I a, I b) {                                                                    \
        const emulation::Lanes<int32_t, I> s(sum);                                                                    \
        const emulation::Lanes<uint8_t, I> x(a);                                                                      \
        const emulation::Lanes<int8_t, I> y(b);                                                                       \
        return emulation::each<int32_t, I>([&](int i) {                                                               \
            int64_t total = s[i];                                                                                     \
            for (int j = 4 * i; j < 4 * i + 4; ++j) total += x[j] * y[j];                                             \
            return emulation::wrapped<int32_t>(total);                                                                \
        });                                                                                                           \
    }                                                                                                                 \
    EMULATED I W##_dpwssd_epi32(I sum, I a, I b) {                                                                    \
        const emulation::Lanes<int32_t, I> s(sum);                                                                    \
        const emulation::Lanes<int16_t, I> x(a), y(b);                                                                \
        return emulation::each<int32_t, I>([&](int i) {                                                               \
            int64_t total = s[i];                                                                                     \
            for (int j = 2 * i; j < 2 * i + 2; ++j) total += (int64_t)x[j] * y[j];                                    \
            return emulation::wrapped<int32_t>(total);                                                                \
        });                                                                                                           \
    }

EMULATED_OF_WIDTH(_mm, __m128, __m128i)
EMULATED_OF_WIDTH(_mm256, __m256, __m256i)
EMULATED_OF_WIDTH(_mm512, __m512, __m512i)

EMULATED __m256i _mm256_dpbusd_avx_epi32(__m256i sum, __m256i a, __m256i b) { return _mm256_dpbusd_epi32(sum, a, b); }
EMULATED __m256i _mm256_dpwssd_avx_epi32(__m256i sum, __m256i a, __m256i b) { return _mm256_dpwssd_epi32(sum, a, b); }

// ---- bits -----------------------------------------------------------------------------------------

#define EMULATED_BITS(name, V, expression)                                                        \
    EMULATED V name(V a, V b) {                                                                   \
        return emulation::map<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return expression; }); \
    }
EMULATED_BITS(_mm256_and_ps, __m256, x& y)
EMULATED_BITS(_mm256_andnot_ps, __m256, ~x& y)
EMULATED_BITS(_mm256_xor_ps, __m256, x ^ y)
EMULATED_BITS(_mm256_and_si256, __m256i, x& y)
EMULATED_BITS(_mm256_or_si256, __m256i, x | y)
EMULATED_BITS(_mm256_xor_si256, __m256i, x ^ y)
EMULATED_BITS(_mm512_and_si512, __m512i, x& y)
EMULATED_BITS(_mm512_or_si512, __m512i, x | y)
EMULATED_BITS(_mm512_xor_si512, __m512i, x ^ y)

inline __m256i _mm256_castps_si256(__m256 x) { return emulation::bits<__m256i>(x); }
inline __m256 _mm256_castsi256_ps(__m256i x) { return emulation::bits<__m256>(x); }
inline __m256 _mm256_castpd_ps(__m256d x) { return emulation::bits<__m256>(x); }
inline __m512i _mm512_castps_si512(__m512 x) { return emulation::bits<__m512i>(x); }
inline __m512 _mm512_castsi512_ps(__m512i x) { return emulation::bits<__m512>(x); }
inline __m512d _mm512_castps_pd(__m512 x) { return emulation::bits<__m512d>(x); }
inline __m128 _mm256_castps256_ps128(__m256 x) { return emulation::load<__m128>(&x); }
inline __m128i _mm256_castsi256_si128(__m256i x) { return emulation::load<__m128i>(&x); }
inline __m256 _mm512_castps512_ps256(__m512 x) { return emulation::load<__m256>(&x); }
inline __m256i _mm512_castsi512_si256(__m512i x) { return emulation::load<__m256i>(&x); }
inline __m128 _mm256_extractf128_ps(__m256 x, int half) { return emulation::load<__m128>(x.byte + 16 * half); }
inline __m128i _mm256_extracti128_si256(__m256i x, int half) { return emulation::load<__m128i>(x.byte + 16 * half); }
inline __m256d _mm512_extractf64x4_pd(__m512d x, int half) { return emulation::load<__m256d>(x.byte + 32 * half); }
inline __m256i _mm512_extracti64x4_epi64(__m512i x, int half) { return emulation::load<__m256i>(x.byte + 32 * half); }

// ---- 128 bits -------------------------------------------------------------------------------------

EMULATED __m128i _mm_loadu_si128(const __m128i* p) { return emulation::load<__m128i>(p); }
EMULATED void _mm_storeu_si128(__m128i* p, __m128i x) { std::memcpy(p, &x, sizeof x); }
EMULATED __m128i _mm_loadl_epi64(const __m128i* p) {
    __m128i v{};
    std::memcpy(&v, p, 8);
    return v;
}
EMULATED void _mm_storel_epi64(__m128i* p, __m128i x) { std::memcpy(p, &x, 8); }
EMULATED int _mm_cvtsi128_si32(__m128i x) { return emulation::Lanes<int32_t, __m128i>(x)[0]; }
EMULATED __m128i _mm_shuffle_epi32(__m128i a, int order) {
    const emulation::Lanes<int32_t, __m128i> x(a);
    return emulation::each<int32_t, __m128i>([&](int i) { return x[order >> 2 * i & 3]; });
}
EMULATED __m128 _mm_movehdup_ps(__m128 a) {
    const emulation::Lanes<float, __m128> x(a);
    return emulation::each<float, __m128>([&](int i) { return x[i | 1]; });
}
EMULATED __m128 _mm_movehl_ps(__m128 a, __m128 b) {
    const emulation::Lanes<float, __m128> x(a), y(b);
    return emulation::each<float, __m128>([&](int i) { return i < 2 ? y[i + 2] : x[i]; });
}
EMULATED __m128 _mm_set_ss(float x) {
    return emulation::each<float, __m128>([=](int i) { return i == 0 ? x : 0.0f; });
}
// Lane 0 of the result, and the rest of `a`.
inline __m128 emulated_low(__m128 a, float first) {
    std::memcpy(&a, &first, 4);
    return a;
}
EMULATED __m128 _mm_add_ss(__m128 a, __m128 b) { return emulated_low(a, _mm_cvtss_f32(a) + _mm_cvtss_f32(b)); }
EMULATED __m128 _mm_max_ss(__m128 a, __m128 b) { return emulated_low(a, _mm_cvtss_f32(_mm_max_ps(a, b))); }
EMULATED __m128 _mm_sqrt_ss(__m128 a) { return emulated_low(a, std::sqrt(_mm_cvtss_f32(a))); }
EMULATED __m128 _mm_fmadd_ss(__m128 a, __m128 b, __m128 c) {
    return emulated_low(a, std::fma(_mm_cvtss_f32(a), _mm_cvtss_f32(b), _mm_cvtss_f32(c)));
}
EMULATED __m128i _mm_hadd_epi32(__m128i a, __m128i b) {
    const emulation::Lanes<int32_t, __m128i> x(a), y(b);
    return emulation::each<int32_t, __m128i>(
        [&](int i) { return i < 2 ? x[2 * i] + x[2 * i + 1] : y[2 * i - 4] + y[2 * i - 3]; });
}

// ---- 256 bits -------------------------------------------------------------------------------------

EMULATED __m256i _mm256_setzero_si256() { return __m256i{}; }
EMULATED __m256i _mm256_loadu_si256(const __m256i* p) { return emulation::load<__m256i>(p); }
EMULATED void _mm256_storeu_si256(__m256i* p, __m256i x) { std::memcpy(p, &x, sizeof x); }
inline __m256i _mm256_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h) {
    const int32_t lanes[] = {a, b, c, d, e, f, g, h};
    return emulation::load<__m256i>(lanes);
}
template <class... Byte>
inline __m256i _mm256_setr_epi8(Byte... byte) {
    const int8_t lanes[] = {(int8_t)byte...};
    static_assert(sizeof lanes == 32);
    return emulation::load<__m256i>(lanes);
}
EMULATED __m256i _mm256_broadcastsi128_si256(__m128i a) {
    return emulation::each<uint8_t, __m256i>([&](int i) { return a.byte[i % 16]; });
}
EMULATED __m256i _mm256_abs_epi8(__m256i a) {
    return emulation::map<int8_t>(a, [](int8_t x) { return x < 0 ? -x : x; });
}
EMULATED __m256i _mm256_sign_epi8(__m256i a, __m256i b) {
    return emulation::map<int8_t>(a, b, [](int8_t x, int8_t y) { return y < 0 ? -x : y == 0 ? 0 : x; });
}
EMULATED __m256i _mm256_cmpgt_epi32(__m256i a, __m256i b) {
    return emulation::map<int32_t>(a, b, [](int32_t x, int32_t y) { return x > y ? -1 : 0; });
}
EMULATED __m256 _mm256_cmp_ps(__m256 a, __m256 b, int) {  // _CMP_GE_OQ
    const emulation::Lanes<float, __m256> x(a), y(b);
    return emulation::bits<__m256>(
        emulation::each<uint32_t, __m256i>([&](int i) { return x[i] >= y[i] ? 0xFFFFFFFFu : 0; }));
}
// By the highest bit of each byte, or of each lane, of `mask`.
EMULATED __m256i _mm256_blendv_epi8(__m256i a, __m256i b, __m256i mask) {
    return emulation::each<uint8_t, __m256i>([&](int i) { return mask.byte[i] & 0x80 ? b.byte[i] : a.byte[i]; });
}
EMULATED __m256 _mm256_blendv_ps(__m256 a, __m256 b, __m256 mask) {
    const emulation::Lanes<uint32_t, __m256> x(a), y(b), m(mask);
    return emulation::each<uint32_t, __m256>([&](int i) { return m[i] & 0x80000000u ? y[i] : x[i]; });
}
EMULATED __m256i _mm256_cvtepi8_epi32(__m128i a) {
    return emulation::each<int32_t, __m256i>([&](int i) { return (int8_t)a.byte[i]; });
}
EMULATED __m256i _mm256_cvtepu8_epi32(__m128i a) {
    return emulation::each<int32_t, __m256i>([&](int i) { return a.byte[i]; });
}
EMULATED __m256 _mm256_cvtph_ps(__m128i a) {
    const emulation::Lanes<uint16_t, __m128i> x(a);
    return emulation::each<float, __m256>([&](int i) { return emulation::half_to_float(x[i]); });
}
EMULATED __m128i _mm256_cvtps_ph(__m256 a, int) {
    const emulation::Lanes<float, __m256> x(a);
    return emulation::each<uint16_t, __m128i>([&](int i) { return emulation::float_to_half(x[i]); });
}
// Within 128 bits: {a's half, b's half}, saturated.
EMULATED __m256i _mm256_packs_epi32(__m256i a, __m256i b) {
    const emulation::Lanes<int32_t, __m256i> x(a), y(b);
    return emulation::each<int16_t, __m256i>([&](int i) {
        const int from = i / 8 * 4 + i % 4;
        return emulation::saturated<int16_t>(i % 8 < 4 ? x[from] : y[from]);
    });
}
EMULATED __m256i _mm256_packs_epi16(__m256i a, __m256i b) {
    const emulation::Lanes<int16_t, __m256i> x(a), y(b);
    return emulation::each<int8_t, __m256i>([&](int i) {
        const int from = i / 16 * 8 + i % 8;
        return emulation::saturated<int8_t>(i % 16 < 8 ? x[from] : y[from]);
    });
}
EMULATED __m256i _mm256_permutevar8x32_epi32(__m256i a, __m256i places) {
    const emulation::Lanes<int32_t, __m256i> x(a), p(places);
    return emulation::each<int32_t, __m256i>([&](int i) { return x[p[i] & 7]; });
}
EMULATED __m256i _mm256_hadd_epi32(__m256i a, __m256i b) {
    const emulation::Lanes<int32_t, __m256i> x(a), y(b);
    return emulation::each<int32_t, __m256i>([&](int i) {
        const int half = i / 4 * 4, from = half + 2 * (i % 2);
        return i % 4 < 2 ? x[from] + x[from + 1] : y[from] + y[from + 1];
    });
}

// ---- 512 bits -------------------------------------------------------------------------------------

EMULATED __m512i _mm512_setzero_si512() { return __m512i{}; }
EMULATED __m512i _mm512_loadu_si512(const void* p) { return emulation::load<__m512i>(p); }
EMULATED void _mm512_storeu_si512(void* p, __m512i x) { std::memcpy(p, &x, sizeof x); }
EMULATED __m512i _mm512_broadcast_i32x4(__m128i a) {
    return emulation::each<uint8_t, __m512i>([&](int i) { return a.byte[i % 16]; });
}
EMULATED __m512 _mm512_abs_ps(__m512 a) {
    return emulation::map<uint32_t>(a, [](uint32_t x) { return x & 0x7FFFFFFFu; });
}
EMULATED __m512 _mm512_cvtph_ps(__m256i a) {
    const emulation::Lanes<uint16_t, __m256i> x(a);
    return emulation::each<float, __m512>([&](int i) { return emulation::half_to_float(x[i]); });
}
EMULATED __m256i _mm512_cvtps_ph(__m512 a, int) {
    const emulation::Lanes<float, __m512> x(a);
    return emulation::each<uint16_t, __m256i>([&](int i) { return emulation::float_to_half(x[i]); });
}
EMULATED __m512i _mm512_cvtepi8_epi32(__m128i a) {
    return emulation::each<int32_t, __m512i>([&](int i) { return (int8_t)a.byte[i]; });
}
EMULATED __m512i _mm512_cvtepu8_epi32(__m128i a) {
    return emulation::each<int32_t, __m512i>([&](int i) { return a.byte[i]; });
}
EMULATED __m128i _mm512_cvtsepi32_epi8(__m512i a) {
    const emulation::Lanes<int32_t, __m512i> x(a);
    return emulation::each<int8_t, __m128i>([&](int i) { return emulation::saturated<int8_t>(x[i]); });
}
// Bit i of `table` is the result for i = a, b, c as binary digits.
EMULATED __m512i _mm512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, int table) {
    return emulation::each<uint8_t, __m512i>([&](int i) {
        int byte = 0;
        for (int j = 0; j < 8; ++j) {
            const int digits = (a.byte[i] >> j & 1) << 2 | (b.byte[i] >> j & 1) << 1 | (c.byte[i] >> j & 1);
            byte |= (table >> digits & 1) << j;
        }
        return byte;
    });
}
template <class Op>
__mmask16 emulated_mask(Op op) {
    int mask = 0;
    for (int i = 0; i < 16; ++i) mask |= (int)op(i) << i;
    return (__mmask16)mask;
}
EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int) {  // _CMP_GE_OQ
    const emulation::Lanes<float, __m512> x(a), y(b);
    return emulated_mask([&](int i) { return x[i] >= y[i]; });
}
EMULATED __mmask16 _mm512_cmpgt_epi32_mask(__m512i a, __m512i b) {
    const emulation::Lanes<int32_t, __m512i> x(a), y(b);
    return emulated_mask([&](int i) { return x[i] > y[i]; });
}
// The second operand where the mask is set.
EMULATED __m512i _mm512_mask_blend_epi32(__mmask16 mask, __m512i a, __m512i b) {
    const emulation::Lanes<uint32_t, __m512i> x(a), y(b);
    return emulation::each<uint32_t, __m512i>([&](int i) { return mask >> i & 1 ? y[i] : x[i]; });
}
EMULATED __m512 _mm512_mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) {
    const emulation::Lanes<uint32_t, __m512> x(a), y(b);
    return emulation::each<uint32_t, __m512>([&](int i) { return mask >> i & 1 ? y[i] : x[i]; });
}
EMULATED __m512 _mm512_maskz_mov_ps(__mmask16 mask, __m512 a) {
    const emulation::Lanes<uint32_t, __m512> x(a);
    return emulation::each<uint32_t, __m512>([&](int i) { return mask >> i & 1 ? x[i] : 0; });
}
