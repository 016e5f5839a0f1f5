// The executor's attention: which queries go over which positions together, and what each step does.
#include <algorithm>

#include "runtime/executor.h"

namespace inferno {
namespace {

// Query rows a unit of attention: two to four register groups share a split's keys and values in L2.
constexpr int kUnitRows = 24;

int64_t num_splits(int64_t positions) { return ceil_div(positions, kSplit); }

}  // namespace

void Executor::list_attention_units(const Op& op) {
    const int group = op.heads / op.kv_heads, tile_tokens = std::max(1, kUnitRows / group);
    int64_t whole = 0;
    for (const auto* s : sequences_) whole += ceil_div(s->count, tile_tokens) * op.kv_heads;
    splits_apart_ = whole < (int64_t)pool_->size() * kChunksPerThread;
    const int padded = (int)round_up(op.head_dim, 16);
    const int64_t state_floats = attention_state_floats(padded);
    int64_t used = 0;
    for (int s = 0, first_row = 0; s < (int)sequences_.size(); first_row += sequences_[s]->count, ++s)
        for (int token = 0; token < sequences_[s]->count; token += tile_tokens)
            for (int kv_head = 0; kv_head < op.kv_heads; ++kv_head) {
                const int tokens = std::min(tile_tokens, sequences_[s]->count - token);
                const int64_t unit_floats = tokens * group * state_floats;
                const int64_t splits = num_splits(sequences_[s]->cache->length() + token + tokens);
                const int64_t step = splits_apart_ ? 1 : splits;
                for (int64_t split = 0; split < splits; split += step) {
                    units_.push_back({s, kv_head, first_row + token, tokens, split, split + step, used});
                    if (splits_apart_) used += unit_floats;
                }
            }
    states_.reserve((size_t)used * sizeof(float));
}

// Rows are rotated and stored apart from one another, so tiles do not matter; fewer than these take no longer
// than it takes to wake a thread.
int Executor::store_chunks() const {
    constexpr int kRowsWorthAChunk = 2;
    return std::clamp(num_rows_ / kRowsWorthAChunk, 1, pool_->size() * kChunksPerThread);
}

void Executor::rotate_and_store(const Op& op, int chunk) {
    const Plan& plan = model_->plan();
    const int chunks = store_chunks();
    for (int i = num_rows_ * chunk / chunks; i < num_rows_ * (chunk + 1) / chunks; ++i) {
        float *q = row(op.input, i), *k = row(op.second, i), *v = row(op.third, i);
        if (op.rope >= 0) {
            const float* cos = angles_.as<float>() + ((int64_t)op.rope * num_rows_ + i) * plan.head_dim;
            const float* sin = cos + plan.head_dim / 2;
            const int pairs = (int)plan.ropes[op.rope].inverse_frequencies.size();
            kernels_.rope(q, op.heads, op.head_dim, pairs, cos, sin);
            kernels_.rope(k, op.kv_heads, op.head_dim, pairs, cos, sin);
        }
        const KvCache& cache = *sequences_[row_list_[i].sequence]->cache;
        const PagePool& pool = *cache.pool();
        const int64_t position = row_list_[i].position;
        uint8_t* page = cache.pages()[position / kPagePositions];
        for (int h = 0; h < op.kv_heads; ++h)
            kernels_.store_kv[(int)pool.type()](k + (int64_t)h * op.head_dim, v + (int64_t)h * op.head_dim, op.head_dim,
                                                (int)(position % kPagePositions), page + pool.head_offset(op.layer, h));
    }
}

void Executor::attend(const Op& op, const AttentionUnit& unit) {
    const int group = op.heads / op.kv_heads;
    const KvCache& cache = *sequences_[unit.sequence]->cache;
    const PagePool& pool = *cache.pool();
    const float* queries[kMaxQueryRows];
    AttentionArgs args;
    args.queries = queries;
    args.rows = unit.tokens * group;
    args.group = group;
    for (int r = 0; r < args.rows; ++r)
        queries[r] =
            row(op.input, unit.first_row + r / group) + (int64_t)(unit.kv_head * group + r % group) * op.head_dim;
    args.first_position = row_list_[unit.first_row].position;
    args.pages = cache.pages().data();
    args.page_offset = pool.head_offset(op.layer, unit.kv_head);
    args.head_dim = op.head_dim;
    args.head_dim_padded = (int)round_up(op.head_dim, 16);
    args.scale = op.scale;
    args.window = op.window;
    args.softcap = op.limit;
    args.first_split = unit.first_split;
    args.last_split = unit.last_split;
    const int64_t state_floats = args.rows * attention_state_floats(args.head_dim_padded);
    float* const space = workspace(state_floats + attention_scratch_floats(args.rows, args.head_dim_padded));
    args.state = splits_apart_ ? states_.as<float>() + unit.state : space;
    args.scratch = space + state_floats;
    kernels_.attention[(int)pool.type()](args);
    if (splits_apart_) return;
    for (int r = 0; r < args.rows; ++r)
        kernels_.finish_state(
            args.state + r * attention_state_floats(args.head_dim_padded), op.head_dim, args.head_dim_padded,
            sink_of(op, unit.kv_head * group + r % group),
            row(op.output, unit.first_row + r / group) + (int64_t)(unit.kv_head * group + r % group) * op.head_dim);
}

// The splits of a tile of queries follow one another in `units_`; the first one's states take the others in.
void Executor::merge(const Op& op, int chunk) {
    const int group = op.heads / op.kv_heads, padded = (int)round_up(op.head_dim, 16);
    const int64_t stride = attention_state_floats(padded);
    for_rows_of_chunk(chunk, num_rows_, [&](int i) {
        for (size_t u = 0; u < units_.size(); ++u) {
            const AttentionUnit& unit = units_[u];
            if (unit.first_split != 0 || i < unit.first_row || i >= unit.first_row + unit.tokens) continue;
            for (int g = 0; g < group; ++g) {
                const int64_t offset = ((i - unit.first_row) * group + g) * stride;
                float* into = states_.as<float>() + unit.state + offset;
                for (size_t next = u + 1; next < units_.size() && units_[next].first_split != 0; ++next)
                    kernels_.merge_states(into, states_.as<float>() + units_[next].state + offset, padded);
                kernels_.finish_state(into, op.head_dim, padded, sink_of(op, unit.kv_head * group + g),
                                      row(op.output, i) + (int64_t)(unit.kv_head * group + g) * op.head_dim);
            }
        }
    });
}

}  // namespace inferno
