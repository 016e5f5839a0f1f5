// Rounding to nearest, denormals kept, for as long as one lives. Another library in the process may have
// set flush-to-zero (anything linked with -ffast-math does, on load); the bits must not depend on it.
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace inferno {

class FloatEnvironment {
public:
    FloatEnvironment() : saved_(control()) { set_control(kDefault); }
    ~FloatEnvironment() { set_control(saved_); }
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

    // The control register of this thread: MXCSR, or FPCR on Arm.
#if defined(__x86_64__)
    static constexpr uint64_t kDefault = 0x1F80;  // all exceptions masked
    static constexpr uint64_t kFlushes = 0x8040;  // results and operands that are denormal
    static uint64_t control() { return _mm_getcsr(); }
    static void set_control(uint64_t word) { _mm_setcsr((unsigned)word); }
#elif defined(__aarch64__)
    static constexpr uint64_t kDefault = 0;
    static constexpr uint64_t kFlushes = (uint64_t)1 << 24;
    static uint64_t control() {
        uint64_t word;
        __asm__ volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void set_control(uint64_t word) { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
#else
    static constexpr uint64_t kDefault = 0, kFlushes = 0;
    static uint64_t control() { return 0; }
    static void set_control(uint64_t) {}
#endif

private:
    uint64_t saved_;
};

}  // namespace inferno
