// What emulated intrinsics are made of: registers as bytes, and loops over their lanes.
//
// Every function is out of line. Bodies of kernels are unrolled for registers that are not there; with the
// intrinsics inline too they would take the compiler minutes.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#define EMULATED [[maybe_unused]] static __attribute__((noinline))

namespace emulation {

template <class Lane, class V>
struct Lanes {
    static constexpr int kCount = (int)(sizeof(V) / sizeof(Lane));
    Lane lane[kCount];
    Lanes() = default;
    explicit Lanes(const V& v) { std::memcpy(lane, &v, sizeof v); }
    Lane& operator[](int i) { return lane[i]; }
    const Lane& operator[](int i) const { return lane[i]; }
    template <class To = V>
    To as() const {
        static_assert(sizeof(To) == sizeof lane);
        To v;
        std::memcpy(&v, lane, sizeof v);
        return v;
    }
};

// V of lanes op(0), op(1), …
template <class Lane, class V, class Op>
V each(Op op) {
    Lanes<Lane, V> out;
    for (int i = 0; i < out.kCount; ++i) out[i] = (Lane)op(i);
    return out.as();
}

// Lane by lane of one register and of two.
template <class Lane, class V, class Op>
V map(const V& a, Op op) {
    const Lanes<Lane, V> x(a);
    return each<Lane, V>([&](int i) { return op(x[i]); });
}
template <class Lane, class V, class Op>
V map(const V& a, const V& b, Op op) {
    const Lanes<Lane, V> x(a), y(b);
    return each<Lane, V>([&](int i) { return op(x[i], y[i]); });
}

template <class To, class From>
To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
template <class V>
V load(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// Integers wrap around, and never by undefined behaviour.
template <class T>
T wrapped(int64_t x) {
    return (T)(uint64_t)x;
}
template <class T>
T saturated(int64_t x) {
    const int64_t low = sizeof(T) == 1 ? -128 : -32768, high = sizeof(T) == 1 ? 127 : 32767;
    return (T)(x < low ? low : x > high ? high : x);
}

// IEEE binary16, by the C++ compiler's own conversions, which the kernels do not use.
inline float half_to_float(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return bits<float>((uint32_t)(h & 0x8000) << 16 | 0x7F800000u | (uint32_t)mantissa << 13);
    if (exponent == 0) return sign * std::ldexp((float)mantissa, -24);
    return sign * std::ldexp((float)(1024 + mantissa), exponent - 25);
}
inline uint16_t float_to_half(float x) {
    const uint32_t u = bits<uint32_t>(x);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    if (std::isnan(x)) return (uint16_t)(sign | 0x7E00 | (u >> 13 & 0x3FF));
    const float magnitude = std::fabs(x);
    if (magnitude >= 65520.0f) return (uint16_t)(sign | 0x7C00);
    int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
    const float units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // 1024 and more are normal
    int mantissa = (int)units;
    if (mantissa == 2048) mantissa = 1024, ++exponent;
    if (mantissa < 1024) return (uint16_t)(sign | mantissa);
    return (uint16_t)(sign | (exponent + 15) << 10 | (mantissa - 1024));
}

}  // namespace emulation
