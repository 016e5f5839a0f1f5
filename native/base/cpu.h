// What this CPU, and the operating system on it, can run. The only place that asks.
#pragma once

namespace inferno {

// AVX2, FMA and F16C, and the registers saved at context switches.
bool cpu_has_avx2();
// What cpu_has_avx2() says, and AVX-512F, BW, VL and VNNI.
bool cpu_has_avx512_vnni();

}  // namespace inferno
