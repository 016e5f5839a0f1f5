// Where the time of forward passes goes, by wall clock: off unless asked for, since it reads the clock
// twice a chunk.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace inferno {

class Profile {
public:
    // Of all phases with one name. `wall` runs from the end of the phase before to the end of the last
    // chunk; `busy` is the chunks' own time, summed over threads: the rest of wall x threads is waiting.
    struct Entry {
        double wall = 0.0, busy = 0.0;
        int64_t phases = 0;
    };

    bool enabled = false;

    void begin(size_t num_phases) {
        clocks_ = std::vector<PhaseClock>(num_phases);
        began_ = now();
    }
    // Call a chunk's work and count its time.
    template <class Work>
    void time(int phase, Work work) {
        const int64_t start = now();
        work();
        const int64_t end = now();
        PhaseClock& clock = clocks_[(size_t)phase];
        clock.busy.fetch_add(end - start, std::memory_order_relaxed);
        int64_t latest = clock.end.load(std::memory_order_relaxed);
        while (end > latest && !clock.end.compare_exchange_weak(latest, end, std::memory_order_relaxed)) {
        }
    }
    // Add what `begin` and `time` have counted; `names[phase]`.
    void end(const std::vector<const char*>& names) {
        int64_t last = began_;
        for (size_t phase = 0; phase < clocks_.size(); ++phase) {
            if (clocks_[phase].end == 0) continue;  // no chunks
            Entry& entry = entries_[names[phase]];
            entry.wall += (double)(clocks_[phase].end - last) * 1e-9;
            entry.busy += (double)clocks_[phase].busy * 1e-9;
            ++entry.phases;
            last = clocks_[phase].end;
        }
    }
    const std::map<std::string, Entry>& entries() const { return entries_; }
    void clear() { entries_.clear(); }

private:
    struct PhaseClock {
        std::atomic<int64_t> busy{0}, end{0};
        PhaseClock() = default;
        PhaseClock(const PhaseClock&) {}
    };
    static int64_t now() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    std::vector<PhaseClock> clocks_;
    int64_t began_ = 0;
    std::map<std::string, Entry> entries_;
};

}  // namespace inferno
