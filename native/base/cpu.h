// What this CPU, and the operating system on it, can run. The only place that asks.
#pragma once

namespace inferno {

// AVX2, FMA and F16C, and the registers saved at context switches.
bool cpu_has_avx2();

}  // namespace inferno
