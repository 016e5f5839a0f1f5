#include "base/thread_pool.h"

#include <chrono>
#include <system_error>

#include "base/check.h"
#include "base/float_environment.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace inferno {
namespace {

thread_local bool inside_a_job = false;

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Waiting, in three steps: spin while the answer is likely a microsecond away; then let others run; a
// worker that has waited a millisecond (longer than anything between two tokens) parks.
class Patience {
public:
    // False once a millisecond has gone by.
    bool wait() {
        if (++spins_ < kSpins) {
            pause();
            return true;
        }
        if (spins_ == kSpins) yielding_since_ = std::chrono::steady_clock::now();
        std::this_thread::yield();
        return std::chrono::steady_clock::now() - yielding_since_ < std::chrono::milliseconds(1);
    }

private:
    // A pause takes 40 to 140 cycles: some 50 microseconds in all.
    static constexpr int kSpins = 2000;
    int spins_ = 0;
    std::chrono::steady_clock::time_point yielding_since_;
};

constexpr uint64_t make_ticket(uint32_t sequence, int count) {
    return (uint64_t)sequence << 32 | (uint64_t)count << 16;
}
constexpr uint32_t sequence_of(uint64_t ticket) { return (uint32_t)(ticket >> 32); }
constexpr int count_of(uint64_t ticket) { return (int)(ticket >> 16 & 0xFFFF); }
constexpr int next_of(uint64_t ticket) { return (int)(ticket & 0xFFFF); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
    if (threads < 1 || threads > kMaxThreads)
        throw Error("invalid-option",
                    "`threads`: expected 1 to " + std::to_string(kMaxThreads) + ", found " + std::to_string(threads));
    workers_->reserve(threads - 1);
    try {
        for (int i = 1; i < threads; ++i) workers_->emplace_back([this] { work(); });
    } catch (const std::system_error&) {
        const int started = size();
        stop();
        throw Error(
            "out-of-memory",
            "Threads: expected " + std::to_string(threads) + ", but the system gave only " + std::to_string(started),
            "use fewer threads, or raise the limits on processes and memory");
    } catch (...) {
        stop();  // threads that nobody joins would end the process
        throw;
    }
}

ThreadPool::~ThreadPool() {
    if (process_ == current_process())
        stop();
    else
        workers_.release();  // a forked child: the threads are not here
}

void ThreadPool::check_process() const {
    if (process_ != current_process())
        throw Error("invalid-option", "The engine was loaded before this process was forked",
                    "load it in the child, or start children by spawning");
}

void ThreadPool::stop() {
    stopping_.store(true);
    jobs_.fetch_add(1);
    jobs_.notify_all();
    for (auto& worker : *workers_) worker.join();
    workers_->clear();
}

int ThreadPool::current_process() {
#if defined(__unix__) || defined(__APPLE__)
    return (int)getpid();
#else
    return 0;  // Windows has no fork
#endif
}

void ThreadPool::work() {
    inside_a_job = true;
    const FloatEnvironment environment;
    Patience patience;
    while (!stopping_.load()) {
        const uint32_t job = jobs_.load();
        if (take_chunk()) {
            patience = {};
            continue;
        }
        if (patience.wait() || running_.load()) continue;
        parked_.fetch_add(1);
        // `jobs_` was read before the look at the ticket: a job that began since then has changed it.
        if (!stopping_.load()) jobs_.wait(job);
        parked_.fetch_sub(1);
        patience = {};
    }
}

bool ThreadPool::take_chunk() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (next_of(ticket) >= count_of(ticket)) return false;
    ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
    if (next_of(ticket) >= count_of(ticket)) return false;
    const int phase = (int)(sequence_of(ticket) - first_sequence_);
    run_chunk(phase, next_of(ticket));
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_of(ticket)) {
        done_.store(0, std::memory_order_relaxed);
        open_phase(phase + 1);
    }
    return true;
}

void ThreadPool::run_chunk(int phase, int chunk) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
        (*body_)(phase, chunk);
    } catch (...) {
        const std::lock_guard lock(failure_mutex_);
        if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
}

// Run phases of a single chunk here and now; publish the ticket of the next one that has more, or end the job.
void ThreadPool::open_phase(int phase) {
    const int phases = (int)counts_->size();
    for (; phase < phases && (*counts_)[phase] <= 1; ++phase)
        if ((*counts_)[phase] == 1) run_chunk(phase, 0);
    const int count = phase < phases ? (*counts_)[phase] : 0;
    ticket_.store(make_ticket(first_sequence_ + phase, count), std::memory_order_release);
    if (phase == phases) running_.store(false, std::memory_order_release);
}

void ThreadPool::run(const std::vector<int>& counts, const std::function<void(int, int)>& body) {
    for (const int count : counts) check(count >= 0 && count <= kMaxChunks, "chunks of a phase");
    if (inside_a_job) return run_inline(counts, body);
    check_process();
    const std::lock_guard lock(callers_);
    const FloatEnvironment environment;
    inside_a_job = true;
    counts_ = &counts;
    body_ = &body;
    // One beyond the sequence that ended the last job: tickets never repeat (2^32 phases are days).
    first_sequence_ = sequence_of(ticket_.load()) + 1;
    failed_.store(false);
    running_.store(true);
    // Before the first phase, which the caller may have to itself: waking takes longer than it does.
    jobs_.fetch_add(1);
    if (parked_.load() > 0) jobs_.notify_all();
    open_phase(0);
    Patience patience;
    while (running_.load(std::memory_order_acquire)) {
        if (take_chunk())
            patience = {};
        else
            patience.wait();
    }
    inside_a_job = false;
    if (failed_.load()) {
        const std::exception_ptr failure = std::exchange(failure_, nullptr);
        std::rethrow_exception(failure);
    }
}

void ThreadPool::run_inline(const std::vector<int>& counts, const std::function<void(int, int)>& body) {
    for (int phase = 0; phase < (int)counts.size(); ++phase)
        for (int chunk = 0; chunk < counts[phase]; ++chunk) body(phase, chunk);
}

}  // namespace inferno
