#include "runtime/rotation.h"

#include <cstddef>

namespace inferno {
namespace {

// pi/2 in two parts; the first has 33 bits, so its product with a quadrant below 2^20 is exact.
constexpr double kHalfPiHigh = 0x1.921fb544p+0, kHalfPiLow = 0x1.0b4611a626331p-34;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Taylor series on |r| <= pi/4. The first terms left out are 0.786^17/17! = 5e-17 and 0.786^18/18! = 2e-18.
double sine(double r) {
    const double z = r * r;
    double p = -1.0 / 1307674368000.0;
    p = p * z + 1.0 / 6227020800.0;
    p = p * z - 1.0 / 39916800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z - 1.0 / 5040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    return r + r * z * p;
}

double cosine(double r) {
    const double z = r * r;
    double p = 1.0 / 20922789888000.0;
    p = p * z - 1.0 / 87178291200.0;
    p = p * z + 1.0 / 479001600.0;
    p = p * z - 1.0 / 3628800.0;
    p = p * z + 1.0 / 40320.0;
    p = p * z - 1.0 / 720.0;
    p = p * z + 1.0 / 24.0;
    p = p * z - 0.5;
    return 1.0 + z * p;
}

}  // namespace

void rotation(int64_t position, const std::vector<float>& inverse_frequencies, float* cos, float* sin) {
    for (std::size_t i = 0; i < inverse_frequencies.size(); ++i) {
        const double angle = (double)((float)position * inverse_frequencies[i]);  // never negative
        const int64_t quadrant = (int64_t)(angle * kTwoOverPi + 0.5);
        const double r = (angle - (double)quadrant * kHalfPiHigh) - (double)quadrant * kHalfPiLow;
        const double s = sine(r), c = cosine(r);
        switch (quadrant & 3) {
            case 0: cos[i] = (float)c, sin[i] = (float)s; break;
            case 1: cos[i] = (float)-s, sin[i] = (float)c; break;
            case 2: cos[i] = (float)-c, sin[i] = (float)-s; break;
            default: cos[i] = (float)s, sin[i] = (float)-c; break;
        }
    }
}

}  // namespace inferno
