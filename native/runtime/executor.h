// Walks a plan for a batch of rows of any number of sequences: one job of the thread pool a forward pass.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "kernels/table.h"
#include "runtime/calibration.h"
#include "runtime/kv_cache.h"
#include "runtime/model.h"
#include "runtime/profile.h"
#include "runtime/routing.h"

namespace inferno {

enum class Logits : uint8_t { none, last, all };
// Where a pass ends: at the logits, or at the rows that the last norm and the head would make logits of.
enum class Output : uint8_t { logits, hidden };

// New tokens of one sequence, at the positions after what its cache holds.
struct SequenceRows {
    KvCache* cache;
    const int32_t* tokens;
    int count;
    Logits logits;
};

class Executor {
public:
    Executor(std::shared_ptr<const Model> model, std::shared_ptr<ThreadPool> pool, const KernelTable& kernels);
    Executor(const Executor&) = delete;

    // Process the rows and extend the caches, then call `take_logits`. One pass at a time: other threads
    // wait. On an exception no cache has grown.
    void forward(const std::vector<SequenceRows>& batch, const std::function<void()>& take_output,
                 Output output = Output::logits);

    // For `take_output`: one row for each wanted, in the order of the batch. (num_logits(), vocab_size)
    int num_logits() const { return num_selected_; }
    const float* logits(int row) const;
    // The same of Output::hidden, after the last norm: hidden_size() floats, written to whole blocks of `out`.
    int64_t hidden_size() const { return last_norm_ ? last_norm_->input.width : 0; }
    void hidden(int row, float* out);

    const Model& model() const { return *model_; }
    const KernelTable& kernels() const { return kernels_; }
    int64_t scratch_bytes() const;

    Profile profile;
    Calibration calibration;

private:
    // Chunks a thread, at least: a thread that is slower, or put aside, leaves half of its share to others. With
    // one token each chunk begins a stream from memory, which costs a microsecond: eight a thread instead of two
    // cost SmolLM2 a sixth of its decode rate (docs/lab-notebook.md).
    static constexpr int kChunksPerThread = 2;
    static constexpr int kMaxQueryRows = 512;

    struct Row {
        int sequence;
        int32_t token;
        int64_t position;
    };
    // A tile of queries of one sequence and key/value head, over a range of splits.
    struct AttentionUnit {
        int sequence, kv_head, first_row, tokens;
        int64_t first_split, last_split, state;  // offset into states_, for splits apart
    };
    struct Phase {
        const Op* op;
        int step;                 // attention: 0 rotate and store, 1 attend, 2 merge; route: 0 choose, 1 group
        const Op* activate;       // linear: the activation that takes each panel while it is in the caches, or null
        bool calibrates = false;  // linear: looks at what will be multiplied
    };
    // Rows that one matrix multiplies: all, or the assignments of an expert.
    struct Batch {
        int matrix, first, tokens;  // `matrix`: how many after the operation's first
    };

    void run_profiled();
    void lay_out(const std::vector<SequenceRows>& batch);
    void list_attention_units(const Op& op);
    void list_phases();
    void find_gated();
    void find_last_norm();
    int num_rows_of(Extent extent) const {
        if (extent == Extent::routed) return num_rows_ * model_->plan().experts_per_token;
        return extent == Extent::selected ? num_selected_ : num_rows_;
    }
    Extent extent_of(const Slice& slice) const { return model_->plan().rows[slice.rows].extent; }
    float* row(const Slice& slice, int index);
    PackTarget pack_target(int pack, int index);

    // Memory of the thread that calls, for the length of a chunk.
    static float* workspace(int64_t floats);
    int row_chunks(int rows) const;
    int store_chunks() const;
    void for_rows_of_chunk(int chunk, int rows, const auto& body) const {
        const int64_t chunks = row_chunks(rows), tiles = ceil_div(rows, kernels_.tokens);
        const int begin = (int)(tiles * chunk / chunks) * kernels_.tokens;
        const int end = std::min(rows, (int)(tiles * (chunk + 1) / chunks) * kernels_.tokens);
        for (int i = begin; i < end; ++i) body(i);
    }
    // How a product is cut: panels of row tiles (of each half, if it is gated) times groups of tokens.
    struct Blocking {
        int64_t panels, panel_tiles, tiles;
        int groups, group_tokens;
    };
    Blocking blocking(const Phase& phase, int tokens, int batches) const;

    int64_t in_stride(int64_t chunk, int64_t chunks) const;
    int chunks_of(const Phase& phase) const;
    void run(const Phase& phase, int chunk);
    void calibrate(const Op& op, int chunk);
    MatmulArgs matmul_args(const Op& op, const Batch& batch, const Blocking& b, int64_t piece);
    void run_linear(const Phase& phase, int64_t chunk, int64_t chunks);
    void run_plain_linear(const Op& op, const Batch& batch, const Blocking& b, int64_t piece);
    void run_gated_linear(const Phase& phase, const Batch& batch, const Blocking& b, int64_t piece);
    int column_parts(int64_t columns, int rows) const;
    void activate(const Op& op, const float* gate, const float* up, int64_t columns, PackTarget to) const;
    void activate_chunk(const Op& op, int chunk);
    void softcap(const Op& op, int chunk);
    void choose_experts(const Op& op, int chunk);
    void combine(const Op& op, int chunk);
    void rotate_and_store(const Op& op, int chunk);
    void attend(const Op& op, const AttentionUnit& unit);
    void merge(const Op& op, int chunk);
    float sink_of(const Op& op, int head) const {
        return op.vector >= 0 ? model_->vector(op.vector)[head] : -__builtin_inff();
    }

    std::mutex mutex_;
    std::shared_ptr<const Model> model_;
    std::shared_ptr<ThreadPool> pool_;
    const KernelTable& kernels_;

    std::vector<Buffer> rows_, packs_;  // one a RowsSpec, one a PackSpec
    Buffer angles_;                     // (ropes, rows, 2, head_dim / 2)
    Buffer states_;                     // softmax states of splits apart
    const Op* last_norm_ = nullptr;     // reads the rows whose logits are wanted
    Output output_ = Output::logits;
    std::vector<bool> is_gated_;  // a RowsSpec: gates and ups, activated panel by panel and never stored
    std::vector<Row> row_list_;
    std::vector<int> selected_;
    std::vector<const SequenceRows*> sequences_;
    std::vector<AttentionUnit> units_;
    Routing routing_;
    bool splits_apart_ = false;  // each split is a unit of its own
    std::vector<Phase> phases_;
    std::vector<int> counts_;
    int num_rows_ = 0, num_selected_ = 0;
};

}  // namespace inferno
