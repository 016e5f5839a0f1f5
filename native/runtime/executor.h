// Walks a plan for a batch of rows of any number of sequences: one job of the thread pool a forward pass.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "kernels/table.h"
#include "runtime/kv_cache.h"
#include "runtime/model.h"
#include "runtime/profile.h"

namespace inferno {

enum class Logits : uint8_t { none, last, all };

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
    void forward(const std::vector<SequenceRows>& batch, const std::function<void()>& take_logits);

    // For `take_logits`: one row for each wanted, in the order of the batch. (num_logits(), vocab_size)
    int num_logits() const { return num_selected_; }
    const float* logits(int row) const;

    const Model& model() const { return *model_; }
    const KernelTable& kernels() const { return kernels_; }
    int64_t scratch_bytes() const;

    Profile profile;

private:
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
        int step;            // attention has several: 0 rotate and store, 1 attend, 2 merge
        const Op* activate;  // linear: the silu_mul that takes each panel while it is in the caches, or null
    };

    void run_profiled();
    void lay_out(const std::vector<SequenceRows>& batch);
    void list_attention_units(const Op& op);
    void list_phases();
    void find_gated();
    int num_rows_of(bool selected) const { return selected ? num_selected_ : num_rows_; }
    float* row(const Slice& slice, int index);
    PackTarget pack_target(int pack, int index);

    int row_chunks(int rows) const;
    void for_rows_of_chunk(int chunk, int rows, const auto& body) const;
    // How a product is cut: panels of row tiles (of each half, if it is gated) times groups of tokens.
    struct Blocking {
        int64_t panels, panel_tiles, tiles;
        int groups, group_tokens;
    };
    Blocking blocking(const Phase& phase) const;

    int64_t in_stride(int64_t chunk, int64_t chunks) const;
    int chunks_of(const Phase& phase) const;
    void run(const Phase& phase, int chunk);
    MatmulArgs matmul_args(const Op& op, const Blocking& b, int64_t panel, int group);
    void run_linear(const Phase& phase, int piece);
    void run_gated_linear(const Phase& phase, int piece);
    int column_parts(const Op& op, int rows) const;
    void silu_mul(const Op& op, int chunk);
    void rotate_and_store(const Op& op, int chunk);
    void attend(const Op& op, const AttentionUnit& unit);
    void merge(const Op& op, int chunk);

    std::mutex mutex_;
    std::shared_ptr<const Model> model_;
    std::shared_ptr<ThreadPool> pool_;
    const KernelTable& kernels_;

    std::vector<Buffer> rows_, packs_;  // one a RowsSpec, one a PackSpec
    Buffer angles_;                     // (ropes, rows, 2, head_dim / 2)
    Buffer states_;                     // softmax states of splits apart
    std::vector<bool> is_gated_;        // a RowsSpec: gates and ups, activated panel by panel and never stored
    std::vector<Row> row_list_;
    std::vector<int> selected_;
    std::vector<const SequenceRows*> sequences_;
    std::vector<AttentionUnit> units_;
    bool splits_apart_ = false;  // each split is a unit of its own
    std::vector<Phase> phases_;
    std::vector<int> counts_;
    int num_rows_ = 0, num_selected_ = 0;
};

}  // namespace inferno
