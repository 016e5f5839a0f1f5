// Sines and cosines of RoPE angles, from additions and multiplications alone: libm's last bits differ
// from system to system, and these go into every key of the cache.
#pragma once
#include <cstdint>
#include <vector>

namespace inferno {

// cos, sin: (inverse_frequencies.size()). The angle is the float32 product position * frequency, as
// transformers computes it.
void rotation(int64_t position, const std::vector<float>& inverse_frequencies, float* cos, float* sin);

}  // namespace inferno
