// The limits of the machine: short measurements by wall clock, on the threads and instructions of an engine.
#pragma once
#include "base/thread_pool.h"
#include "kernels/table.h"

namespace inferno {

struct MachineLimits {
    double read_bytes_per_second;  // memory, sequential, all threads
    double int8_macs_per_second;   // multiply-adds of the 4-bit kernel's inner step
    double float_macs_per_second;  // fused multiply-adds of float32
};

// About a second; needs 256 MB for as long as it runs.
MachineLimits probe_machine(ThreadPool& pool, const KernelTable& kernels);

}  // namespace inferno
