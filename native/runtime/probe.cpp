#include "runtime/probe.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "base/buffer.h"

namespace inferno {
namespace {

constexpr int kRuns = 5;
// Eight times the largest last-level cache of a common machine.
constexpr int64_t kReadBytes = 256 << 20;
constexpr int kReadChunks = 256;
constexpr int64_t kDotBlocks = 200'000, kFmaSteps = 2'000'000;

// The median seconds of `work`, after one run that does not count.
double median_seconds(const std::function<void()>& work) {
    std::vector<double> seconds;
    for (int run = 0; run <= kRuns; ++run) {
        const auto began = std::chrono::steady_clock::now();
        work();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        if (run > 0) seconds.push_back(took.count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
    return seconds[kRuns / 2];
}

}  // namespace

MachineLimits probe_machine(ThreadPool& pool, const KernelTable& kernels) {
    std::atomic<float> sink{0.0f};
    Buffer buffer((size_t)kReadBytes + 4096);
    constexpr int64_t chunk_bytes = kReadBytes / kReadChunks;
    // Random bits: a buffer of one value could be compressed on the way.
    pool.parallel_for(kReadChunks, [&](int chunk) {
        uint64_t state = 0x9E3779B97F4A7C15u * (uint64_t)(chunk + 1);
        auto* words = (uint64_t*)(buffer.data() + chunk * chunk_bytes);
        for (int64_t i = 0; i < chunk_bytes / 8; ++i) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            words[i] = state & 0x3FFFFFFF3FFFFFFFu;  // finite floats below 2: no slow paths
        }
    });
    const double read = median_seconds([&] {
        pool.parallel_for(kReadChunks, [&](int chunk) {
            sink = kernels.probe_read(buffer.data() + chunk * chunk_bytes, chunk_bytes);
        });
    });
    const int threads = pool.size();
    const double dot =
        median_seconds([&] { pool.parallel_for(threads, [&](int) { sink = kernels.probe_dot(kDotBlocks); }); });
    const double fma =
        median_seconds([&] { pool.parallel_for(threads, [&](int) { sink = kernels.probe_fma(kFmaSteps); }); });
    const double dot_macs = (double)kDotBlocks * kTileRows * kBlock * kernels.tokens * threads;
    const double fma_macs = (double)kFmaSteps * kProbeChains * 16 * threads;
    return {(double)kReadBytes / read, dot_macs / dot, fma_macs / fma};
}

}  // namespace inferno
