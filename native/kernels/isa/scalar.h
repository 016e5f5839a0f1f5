// Plain C++: the specification that every other ISA equals bit for bit, and what runs where none does.
#pragma once
#include <cmath>

#include "base/numeric.h"

// The bodies unroll their loops over rows and tokens for the sake of registers, of which this has none: what
// they call is kept out of line, or the code would be ten times as long and no faster.
#define INFERNO_APART static __attribute__((noinline))

namespace inferno {

struct Scalar {
    static constexpr const char* kName = "scalar";
    static constexpr int kTokens = 4;
    static constexpr int kPartTokens = kTokens, kTiles = 1;
    // Tokens from which blocks of 256 columns are taken apart before they are multiplied.
    static constexpr int kExpandsFrom = 16;
    static constexpr bool kHoldsCodes = false;
    // Rows of attention side by side.
    static constexpr int kGroupRows = 1;
    static constexpr int kLanes = 16;

    // ---- f32, 16 lanes -------------------------------------------------------------------------
    struct F32 {
        float lane[kLanes];
    };
    template <class Op>
    INFERNO_INLINE F32 each(Op op) {
        F32 out;
        for (int i = 0; i < kLanes; ++i) out.lane[i] = op(i);
        return out;
    }
    INFERNO_INLINE F32 zero() { return splat(0.0f); }
    INFERNO_INLINE F32 splat(float x) {
        return each([=](int) { return x; });
    }
    INFERNO_INLINE F32 load(const float* p) {
        return each([=](int i) { return p[i]; });
    }
    INFERNO_INLINE void store(float* p, F32 x) { std::memcpy(p, x.lane, sizeof x.lane); }
    INFERNO_INLINE F32 load_f16(const f16* p) {
        return each([=](int i) { return f16_to_f32(p[i]); });
    }
    INFERNO_INLINE void store_f16(f16* p, F32 x) {
        for (int i = 0; i < kLanes; ++i) p[i] = f32_to_f16(x.lane[i]);
    }
    INFERNO_INLINE F32 load_int8(const int8_t* p) {
        return each([=](int i) { return (float)p[i]; });
    }
    INFERNO_INLINE F32 load_half_powers_of_two(const uint8_t* exponents) {
        return each([=](int i) { return half_power_of_two(exponents[i]); });
    }
    INFERNO_INLINE F32 load_bf16_even(const bf16* p) {
        return each([=](int i) { return bf16_to_f32(p[2 * i]); });
    }
    INFERNO_INLINE F32 load_bf16_odd(const bf16* p) {
        return each([=](int i) { return bf16_to_f32(p[2 * i + 1]); });
    }
    INFERNO_INLINE F32 add(F32 a, F32 b) {
        return each([&](int i) { return a.lane[i] + b.lane[i]; });
    }
    INFERNO_INLINE F32 sub(F32 a, F32 b) {
        return each([&](int i) { return a.lane[i] - b.lane[i]; });
    }
    INFERNO_INLINE F32 mul(F32 a, F32 b) {
        return each([&](int i) { return a.lane[i] * b.lane[i]; });
    }
    INFERNO_INLINE F32 div(F32 a, F32 b) {
        return each([&](int i) { return a.lane[i] / b.lane[i]; });
    }
    INFERNO_INLINE F32 fma(F32 a, F32 b, F32 c) {
        return each([&](int i) { return fma1(a.lane[i], b.lane[i], c.lane[i]); });
    }
    INFERNO_INLINE F32 max(F32 a, F32 b) {
        return each([&](int i) { return max1(a.lane[i], b.lane[i]); });
    }
    INFERNO_INLINE F32 min(F32 a, F32 b) {
        return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    INFERNO_INLINE F32 negate(F32 a) {
        return each([&](int i) { return float_of(bits_of(a.lane[i]) ^ 0x80000000u); });
    }
    INFERNO_INLINE F32 abs(F32 a) {
        return each([&](int i) { return float_of(bits_of(a.lane[i]) & 0x7FFFFFFFu); });
    }
    // The fixed tree: lane i + lane i+8, then i+4, i+2, i+1.
    INFERNO_INLINE float reduce_add(F32 x) {
        for (int half = kLanes / 2; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) x.lane[i] = x.lane[i] + x.lane[i + half];
        return x.lane[0];
    }
    INFERNO_INLINE float reduce_max(F32 x) {
        for (int half = kLanes / 2; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) x.lane[i] = max1(x.lane[i], x.lane[i + half]);
        return x.lane[0];
    }
    // The largest |x| of 32 lanes, compared as bits: a NaN is larger than infinity and never lost.
    INFERNO_INLINE float largest_magnitude(F32 a, F32 b) {
        uint32_t largest = 0;
        for (int i = 0; i < kLanes; ++i) {
            const uint32_t x = bits_of(a.lane[i]) & 0x7FFFFFFFu, y = bits_of(b.lane[i]) & 0x7FFFFFFFu;
            largest = x > largest ? x : largest;
            largest = y > largest ? y : largest;
        }
        return float_of(largest);
    }
    INFERNO_INLINE F32 keep_first(F32 x, int count, float other) {
        return each([&](int i) { return i < count ? x.lane[i] : other; });
    }
    INFERNO_INLINE F32 where_ge(F32 x, F32 a, F32 b) {
        return each([&](int i) { return a.lane[i] >= b.lane[i] ? x.lane[i] : 0.0f; });
    }
    INFERNO_INLINE F32 scale_by_low_bits(F32 x, F32 t) {
        return each([&](int i) { return float_of(bits_of(x.lane[i]) + (bits_of(t.lane[i]) << 23)); });
    }

    // ---- f32, one lane --------------------------------------------------------------------------
    INFERNO_INLINE float first(F32 x) { return x.lane[0]; }
    INFERNO_INLINE float sqrt(float x) { return std::sqrt(x); }
    INFERNO_INLINE float max1(float a, float b) { return a > b ? a : b; }
    INFERNO_INLINE float fma1(float a, float b, float c) { return std::fma(a, b, c); }

    // ---- int8: 16 rows x 4 consecutive columns -------------------------------------------------
    struct Bytes {
        uint8_t row[kLanes][4];
    };
    INFERNO_APART Bytes load_bytes(const uint8_t* p) {
        Bytes out;
        std::memcpy(out.row, p, sizeof out.row);
        return out;
    }
    INFERNO_APART void store_bytes(uint8_t* p, const Bytes& b) { std::memcpy(p, b.row, sizeof b.row); }
    INFERNO_APART Bytes field(Bytes b, int shift, uint8_t mask) {
        for (auto& row : b.row)
            for (auto& byte : row) byte = (uint8_t)(shift >= 0 ? byte >> shift : byte << -shift) & mask;
        return b;
    }
    INFERNO_APART Bytes merge(Bytes base, Bytes b, int shift, uint8_t mask) {
        const Bytes bits = field(b, shift, mask);
        for (int i = 0; i < kLanes; ++i)
            for (int j = 0; j < 4; ++j) base.row[i][j] |= bits.row[i][j];
        return base;
    }
    INFERNO_APART Bytes subtract(Bytes b, int8_t x) {
        for (auto& row : b.row)
            for (auto& byte : row) byte = (uint8_t)(byte - x);
        return b;
    }
    INFERNO_APART Bytes lookup(Bytes b, const int8_t* table) {
        for (auto& row : b.row)
            for (auto& byte : row) byte = (uint8_t)table[byte];
        return b;
    }
    using Four = const int8_t*;
    INFERNO_INLINE Four broadcast(const int8_t* x4) { return x4; }
    struct I32 {
        int32_t lane[kLanes];
    };
    INFERNO_APART I32 zero_i32() { return {}; }
    INFERNO_APART I32 load(const int32_t* p) {
        I32 out;
        std::memcpy(out.lane, p, sizeof out.lane);
        return out;
    }
    INFERNO_APART void store(int32_t* p, I32 x) { std::memcpy(p, x.lane, sizeof x.lane); }
    INFERNO_APART I32 add(I32 a, I32 b) {
        for (int i = 0; i < kLanes; ++i) a.lane[i] += b.lane[i];
        return a;
    }
    INFERNO_APART I32 shift_left(I32 a, int n) {
        for (auto& lane : a.lane) lane *= 1 << n;
        return a;
    }
    INFERNO_APART F32 to_float(I32 a) {
        return each([&](int i) { return (float)a.lane[i]; });
    }

    static constexpr bool kSumsStartAnywhere = true;
    static constexpr int code_run(int) { return 8; }
    using CodeSum = I32;
    INFERNO_APART CodeSum code_sum(int32_t start) {
        I32 out;
        for (auto& lane : out.lane) lane = start;
        return out;
    }
    INFERNO_APART void dot_codes(CodeSum& sum, const Bytes& w, Four x4) {
        for (int i = 0; i < kLanes; ++i)
            for (int j = 0; j < 4; ++j) sum.lane[i] += (int32_t)w.row[i][j] * x4[j];
    }
    INFERNO_APART I32 code_total(CodeSum sum, int32_t) { return sum; }
    using ByteSum = I32;
    using SignedBytes = Bytes;
    INFERNO_APART SignedBytes signed_bytes(Bytes w) { return w; }
    INFERNO_APART ByteSum byte_sum(int32_t) { return {}; }
    INFERNO_APART void dot_bytes(ByteSum& sum, SignedBytes w, Four x4) {
        for (int i = 0; i < kLanes; ++i)
            for (int j = 0; j < 4; ++j) sum.lane[i] += (int32_t)(int8_t)w.row[i][j] * x4[j];
    }
    INFERNO_APART I32 byte_total(ByteSum sum) { return sum; }

    // ---- integer scales: a lane holds four int8, of one row's sub-blocks -------------------------
    using Scale = I32;
    INFERNO_APART Scale scale_of(Bytes b, int i) {
        I32 out;
        for (int lane = 0; lane < kLanes; ++lane) out.lane[lane] = (int8_t)b.row[lane][i];
        return out;
    }
    INFERNO_APART I32 scaled(I32 sum, Scale s) {
        for (int i = 0; i < kLanes; ++i) sum.lane[i] *= s.lane[i];
        return sum;
    }
    struct Pairs {
        int16_t lane[kLanes][2];
    };
    INFERNO_APART Pairs even_bytes(Bytes b) {
        Pairs out;
        for (int i = 0; i < kLanes; ++i) out.lane[i][0] = (int8_t)b.row[i][0], out.lane[i][1] = (int8_t)b.row[i][2];
        return out;
    }
    INFERNO_APART Pairs odd_bytes(Bytes b) {
        Pairs out;
        for (int i = 0; i < kLanes; ++i) out.lane[i][0] = (int8_t)b.row[i][1], out.lane[i][1] = (int8_t)b.row[i][3];
        return out;
    }
    INFERNO_APART I32 dot_pairs(I32 acc, Pairs a, const int16_t* x2) {
        for (int i = 0; i < kLanes; ++i) acc.lane[i] += a.lane[i][0] * x2[0] + a.lane[i][1] * x2[1];
        return acc;
    }

    // The default rounding mode is to nearest, ties to even.
    INFERNO_INLINE void store_rounded(int8_t* p, F32 a, F32 b, int32_t (&sums)[2]) {
        sums[0] = sums[1] = 0;
        for (int i = 0; i < kLanes; ++i) {
            sums[0] += p[i] = (int8_t)std::nearbyint(a.lane[i]);
            sums[1] += p[i + kLanes] = (int8_t)std::nearbyint(b.lane[i]);
        }
    }
    INFERNO_INLINE void prefetch(const void*) {}
};

}  // namespace inferno
