// Threads that walk a list of phases together.
//
// A job is a list of phases; a phase is a number of chunks; a phase starts when every chunk of the one
// before it is done. Chunks are claimed from one atomic ticket, so fast cores take more, and a phase
// waits for its chunks and not for threads: a worker that the system has put aside between two chunks
// holds nobody up. A phase of one chunk is run by whoever finishes the one before it, and is nobody's wait.
// The caller works too. Workers spin for a moment, then yield, then park.
//
//   ticket = sequence:32 | count:16 | next:16      `sequence` numbers all phases of all jobs
//
// A claim is one fetch_add; it is valid when next < count, and everything that decides this is in the
// value itself, so a late worker can never run a chunk of a job that is over.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace inferno {

class ThreadPool {
public:
    static constexpr int kMaxThreads = 256;
    static constexpr int kMaxChunks = 32768;  // of a phase: with kMaxThreads late claims it stays below 65536

    // The caller is one of the threads. Throws if the system does not give the others.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    // Throws in a process that was forked after the pool was made: its threads are not there, and its locks
    // may be held for ever.
    void check_process() const;

    int size() const { return (int)workers_->size() + 1; }

    // Run body(phase, chunk) for all chunks of phase 0, then 1, ... `counts[i]` in 0 .. kMaxChunks.
    // The first exception of a body is thrown here, once nobody works on the job any more; the chunks
    // not yet started are skipped. A call from within a body runs inline.
    void run(const std::vector<int>& counts, const std::function<void(int phase, int chunk)>& body);

    void parallel_for(int count, const std::function<void(int)>& body) {
        run({count}, [&](int, int chunk) { body(chunk); });
    }

private:
    static int current_process();
    void work();
    bool take_chunk();  // false: nothing to claim right now
    void run_chunk(int phase, int chunk);
    void open_phase(int phase);
    void stop();
    void run_inline(const std::vector<int>& counts, const std::function<void(int, int)>& body);

    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<int> done_{0};
    alignas(64) std::atomic<uint32_t> jobs_{0};  // parked workers wait for this to change
    std::atomic<int> parked_{0};
    std::atomic<bool> running_{false};

    // The job; written by the caller before the first ticket, stable while any valid claim is out.
    const std::vector<int>* counts_ = nullptr;
    const std::function<void(int, int)>* body_ = nullptr;
    uint32_t first_sequence_ = 0;
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;
    std::mutex failure_mutex_;

    std::mutex callers_;  // one job at a time
    std::atomic<bool> stopping_{false};
    // Behind a pointer, to be left alone in a forked child, where there are no threads to join. Not
    // std::jthread, which Apple's library does not have yet.
    std::unique_ptr<std::vector<std::thread>> workers_ = std::make_unique<std::vector<std::thread>>();
    const int process_ = current_process();
};

}  // namespace inferno
