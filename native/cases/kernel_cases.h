// Every kernel of a table on inputs made here, without Python: what one machine computes, another can compare.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/table.h"

namespace inferno {

// Answers of one kernel to inputs of one kind.
struct KernelCases {
    std::string name;
    int64_t count;  // of answers
    uint64_t hash;  // FNV-1a of all their bytes, in order
};

std::vector<KernelCases> kernel_cases(const KernelTable& kernels);

// Multiply-adds a second of one thread and a prefill of 128 tokens, by weights and activations that fit the caches.
double matmul_rate(const KernelTable& kernels, Format format);

}  // namespace inferno
