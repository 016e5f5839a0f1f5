// Rounding to nearest, denormals kept, for as long as one lives. Another library in the process may have
// set flush-to-zero (anything linked with -ffast-math does, on load); the bits must not depend on it.
#pragma once
#include <cstdint>
#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace inferno {

class FloatEnvironment {
public:
#if defined(__x86_64__) || defined(_M_X64)
    FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }  // the default: all exceptions masked
    ~FloatEnvironment() { _mm_setcsr(saved_); }

private:
    unsigned saved_;
#elif defined(__aarch64__)
    FloatEnvironment() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
        __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t(0)));
    }
    ~FloatEnvironment() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_)); }

private:
    uint64_t saved_;
#else
    FloatEnvironment() {}
#endif
public:
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;
};

}  // namespace inferno
