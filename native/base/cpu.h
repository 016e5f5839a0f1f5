// What this CPU, and the operating system on it, can run. The only place that asks.
#pragma once
#include <cstdint>

namespace inferno {

// One field an instruction set of kernels, of the same name (kernels/dispatch.cpp).
struct CpuFeatures {
    bool avx2 = false;         // with FMA and F16C, and the registers saved at context switches
    bool avx_vnni = false;     // avx2, and the 256-bit dot products of bytes
    bool avx512_vnni = false;  // avx2, and AVX-512F, BW, VL and VNNI
    bool neon = false;         // which every 64-bit Arm has
    bool neon_dotprod = false;
    bool neon_i8mm = false;  // neon_dotprod, and products of int8 matrices
};

// The words that an x86 CPU answers with; zeros stand for what may not be asked.
struct X86Words {
    uint32_t highest_leaf;          // CPUID(0).eax
    uint32_t leaf1_ecx;             // CPUID(1)
    uint32_t leaf7_ebx, leaf7_ecx;  // CPUID(7, 0)
    uint32_t leaf7_1_eax;           // CPUID(7, 1)
    uint32_t saved_registers;       // XGETBV(0), which the operating system sets
};

// The words that Linux gives a process on Arm: what all cores have in common, however they differ.
struct ArmWords {
    uint64_t hwcap, hwcap2;
};

CpuFeatures features_of(const X86Words& words);
CpuFeatures features_of(const ArmWords& words);

// Of this machine, asked once.
const CpuFeatures& cpu_features();

}  // namespace inferno
