// Rows of float32 on their way into a matrix product: normalized, activated or as they are, then
// rounded to int8 blocks (or copied), in the tile layout of quant/activations.h.
#pragma once
#include "kernels/body/exp.inl.h"
#include "kernels/table.h"

namespace inferno {

// Blocks whose largest magnitude is below this become zeros: 127 / amax must not overflow.
constexpr float kSmallestAmax = 1e-30f;
constexpr uint32_t kInfinityBits = 0x7F800000u, kNanBits = 0x7FC00000u;

// The scale of a block, and what its values are multiplied with before they are rounded.
struct Rounding {
    float scale, inverse;
    bool finite;
};

INFERNO_INLINE Rounding rounding_of(float amax) {
    const bool any = amax >= kSmallestAmax;
    const bool finite = bits_of(amax) < kInfinityBits;
    // What is not finite must not look like an answer: the scale is NaN, and so is all that it touches.
    return {!finite ? float_of(kNanBits) : any ? amax / 127.0f : 0.0f, any ? 127.0f / amax : 0.0f, finite};
}

template <class Isa>
INFERNO_INLINE void pack_f32(PackTarget to, int64_t block, typename Isa::F32 a, typename Isa::F32 b) {
    float* x = (float*)(to.tile + block * to.width * sizeof(F32Block<1>)) + to.slot * kBlock;
    Isa::store(x, a);
    Isa::store(x + 16, b);
}

template <class Isa>
INFERNO_INLINE void pack_q8(PackTarget to, int64_t block, typename Isa::F32 a, typename Isa::F32 b) {
    uint8_t* base = to.tile + block * to.width * sizeof(Q8Block<1>);
    int8_t* q = (int8_t*)base + to.slot * kBlock;
    const Rounding rounding = rounding_of(Isa::largest_magnitude(a, b));
    const auto inverse = Isa::splat(rounding.inverse);
    if (!rounding.finite) a = Isa::zero(), b = Isa::zero();
    int32_t sums[2];
    Isa::store_rounded(q, Isa::mul(a, inverse), Isa::mul(b, inverse), sums);
    const int32_t sum = sums[0] + sums[1], bias = -8 * sum;
    const float scaled_sum = rounding.scale * (float)sum;
    uint8_t* facts = base + to.width * kBlock + to.slot * 4;
    std::memcpy(facts, &rounding.scale, 4);
    std::memcpy(facts + to.width * 4, &bias, 4);
    std::memcpy(facts + to.width * 8, &scaled_sum, 4);
}

// x: (256)
template <class Isa>
INFERNO_INLINE void pack_q8_k(PackTarget to, int64_t block, const float* x) {
    uint8_t* base = to.tile + block * to.width * sizeof(Q8KBlock<1>);
    int8_t* q = (int8_t*)base + to.slot * kSuperBlock;
    float amax = 0.0f;
    for (int i = 0; i < kSuperBlock; i += 32) {
        const float largest = Isa::largest_magnitude(Isa::load(x + i), Isa::load(x + i + 16));
        if (bits_of(largest) > bits_of(amax)) amax = largest;  // as bits: a NaN is the largest
    }
    const Rounding rounding = rounding_of(amax);
    const auto inverse = Isa::splat(rounding.inverse);
    int32_t bias[16];
    int16_t sums16[16], sums32[8];
    for (int i = 0; i < 8; ++i) {
        auto a = Isa::load(x + 32 * i), b = Isa::load(x + 32 * i + 16);
        if (!rounding.finite) a = Isa::zero(), b = Isa::zero();
        int32_t sums[2];
        Isa::store_rounded(q + 32 * i, Isa::mul(a, inverse), Isa::mul(b, inverse), sums);
        bias[2 * i] = -32 * sums[0];
        bias[2 * i + 1] = -32 * sums[1];
        sums16[paired(2 * i)] = (int16_t)-sums[0];
        sums16[paired(2 * i + 1)] = (int16_t)-sums[1];
        sums32[paired(i)] = (int16_t)-(sums[0] + sums[1]);
    }
    uint8_t* facts = base + to.width * kSuperBlock;
    const auto put = [&](const void* fact, size_t size) {
        std::memcpy(facts + to.slot * size, fact, size);
        facts += to.width * size;
    };
    put(&rounding.scale, sizeof rounding.scale);
    put(bias, sizeof bias);
    put(sums16, sizeof sums16);
    put(sums32, sizeof sums32);
}

// `lanes(i)` gives columns i .. i + 15; columns from `columns` on become zero.
template <class Isa, class Lanes>
INFERNO_INLINE void pack_row(int64_t columns, PackTarget to, Lanes lanes) {
    const auto kept = [&](int64_t i) {
        const int64_t rest = columns - i;
        return rest >= 16 ? lanes(i) : rest > 0 ? Isa::keep_first(lanes(i), (int)rest, 0.0f) : Isa::zero();
    };
    if (to.kind == Activation::q8_k) {
        for (int64_t b = 0; b * kSuperBlock < columns; ++b) {
            alignas(64) float x[kSuperBlock];
            for (int i = 0; i < kSuperBlock; i += 16) Isa::store(x + i, kept(b * kSuperBlock + i));
            pack_q8_k<Isa>(to, b, x);
        }
    } else if (to.kind == Activation::q8) {
        for (int64_t b = 0; b * kBlock < columns; ++b) pack_q8<Isa>(to, b, kept(b * kBlock), kept(b * kBlock + 16));
    } else {
        for (int64_t b = 0; b * kBlock < columns; ++b) pack_f32<Isa>(to, b, kept(b * kBlock), kept(b * kBlock + 16));
    }
}

template <class Isa>
void pack(const float* x, int64_t columns, PackTarget to) {
    pack_row<Isa>(columns, to, [=](int64_t i) { return Isa::load(x + i); });
}

// 1 / sqrt(mean(x^2) + epsilon)
template <class Isa>
INFERNO_INLINE float inverse_rms(const float* x, int64_t columns, float epsilon) {
    auto squares = Isa::zero();
    int64_t i = 0;
    for (; i + 16 <= columns; i += 16) {
        const auto v = Isa::load(x + i);
        squares = Isa::fma(v, v, squares);
    }
    if (i < columns) {
        const auto v = Isa::keep_first(Isa::load(x + i), (int)(columns - i), 0.0f);
        squares = Isa::fma(v, v, squares);
    }
    const float mean = Isa::reduce_add(squares) / (float)columns;
    return 1.0f / Isa::sqrt(mean + epsilon);
}

template <class Isa>
void rms_norm(const float* x, const float* weight, int64_t columns, float epsilon, PackTarget to) {
    const auto inverse = Isa::splat(inverse_rms<Isa>(x, columns, epsilon));
    pack_row<Isa>(columns, to,
                  [=](int64_t j) { return Isa::mul(Isa::mul(Isa::load(x + j), inverse), Isa::load(weight + j)); });
}

template <class Isa>
void rms_norm_rows(const float* x, const float* weight, int64_t columns, float epsilon, bool accumulate, float* out) {
    const auto inverse = Isa::splat(inverse_rms<Isa>(x, columns, epsilon));
    for (int64_t i = 0; i < columns; i += 16) {
        auto y = Isa::mul(Isa::mul(Isa::load(x + i), inverse), Isa::load(weight + i));
        if (accumulate) y = Isa::add(Isa::load(out + i), y);
        if (i + 16 <= columns) {
            Isa::store(out + i, y);
        } else {  // a head's end, where the next one begins
            alignas(64) float rest[16];
            Isa::store(rest, y);
            for (int64_t j = i; j < columns; ++j) out[j] = rest[j - i];
        }
    }
}

template <class Isa>
void silu_mul(const float* gate, const float* up, int64_t columns, PackTarget to) {
    const auto one = Isa::splat(1.0f);
    // exp stops growing at e^88: below -88 the gate is held there, where silu is 0 for all purposes.
    const auto lowest = Isa::splat(-kExpHighest);
    pack_row<Isa>(columns, to, [=](int64_t i) {
        const auto g = Isa::max(lowest, Isa::load(gate + i));  // in this order a NaN stays
        const auto silu = Isa::div(g, Isa::add(one, exp16<Isa>(Isa::negate(g))));
        return Isa::mul(silu, Isa::load(up + i));
    });
}

// x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3), which is x (1 + tanh u) / 2.
template <class Isa>
void gelu_mul(const float* gate, const float* up, int64_t columns, PackTarget to) {
    constexpr float kMinusTwoSqrtTwoOverPi = -0x1.988454p+0f, kCubic = 0.044715f;
    const auto one = Isa::splat(1.0f);
    // exp stops growing at e^88, which -2u reaches here: below, gelu is 0 for all purposes.
    const auto lowest = Isa::splat(-10.0f);
    pack_row<Isa>(columns, to, [=](int64_t i) {
        const auto g = Isa::max(lowest, Isa::load(gate + i));  // in this order a NaN stays
        const auto inner = Isa::fma(Isa::mul(Isa::mul(g, g), Isa::splat(kCubic)), g, g);
        const auto e = exp16<Isa>(Isa::mul(inner, Isa::splat(kMinusTwoSqrtTwoOverPi)));
        return Isa::mul(Isa::div(g, Isa::add(one, e)), Isa::load(up + i));
    });
}

// Source: transformers, `GptOssExperts`.
template <class Isa>
void clamped_swiglu(const float* gate, const float* up, int64_t columns, float limit, PackTarget to) {
    constexpr float kAlpha = 1.702f;
    const auto one = Isa::splat(1.0f);
    const auto highest = Isa::splat(limit), lowest = Isa::splat(-limit);
    const auto lowest_gate = Isa::splat(-kExpHighest / kAlpha);  // as for silu
    pack_row<Isa>(columns, to, [=](int64_t i) {
        const auto g = Isa::max(lowest_gate, Isa::min(highest, Isa::load(gate + i)));  // in this order a NaN stays
        const auto u = Isa::max(lowest, Isa::min(highest, Isa::load(up + i)));
        const auto e = exp16<Isa>(Isa::mul(g, Isa::splat(-kAlpha)));
        return Isa::mul(Isa::div(g, Isa::add(one, e)), Isa::add(u, one));
    });
}

}  // namespace inferno
