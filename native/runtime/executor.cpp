#include "runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "runtime/rotation.h"

namespace inferno {
namespace {

// A panel of weights and a group of activations stay in L2 together: 128 KB each fit the 256 KB of the
// smallest L2 that AVX2 machines have.
constexpr int64_t kPanelBytes = 128 << 10, kGroupBytes = 128 << 10;
// Chunks a thread, so that a thread that is slower, or put aside, leaves little to wait for.
constexpr int kChunksPerThread = 8;
// Query rows a unit of attention: two to four register groups share a split's keys and values in L2.
constexpr int kUnitRows = 24;
constexpr int kMaxQueryRows = 512;
// Columns of an activation that are worth a chunk of their own: some two microseconds.
constexpr int64_t kColumnsWorthAChunk = 512;

// How a phase is called in a profile.
const char* phase_name(OpKind kind, int step) {
    if (kind == OpKind::attention && step == 0) return "rotate and store";
    if (kind == OpKind::attention && step == 2) return "merge splits";
    switch (kind) {
#define X(name) \
    case OpKind::name: return #name;
        INFERNO_OP_KINDS(X)
#undef X
    }
    return "";
}

// Whole blocks: an embedding's row is unpacked block by block, and must not reach into the next row.
int64_t row_stride(const RowsSpec& spec) { return round_up(spec.columns, kBlock); }

int64_t num_splits(int64_t positions) { return ceil_div(positions, kSplit); }

}  // namespace

Executor::Executor(std::shared_ptr<const Model> model, std::shared_ptr<ThreadPool> pool, const KernelTable& kernels)
    : model_(std::move(model)),
      pool_(std::move(pool)),
      kernels_(kernels),
      rows_(model_->plan().rows.size()),
      packs_(model_->plan().packs.size()) {
    for (const Op& op : model_->plan().ops)
        if (op.kind == OpKind::attention) check(op.heads / op.kv_heads <= kMaxQueryRows, "heads a key/value head");
}

int64_t Executor::scratch_bytes() const {
    int64_t bytes = (int64_t)(angles_.size() + states_.size());
    for (const auto& b : rows_) bytes += (int64_t)b.size();
    for (const auto& b : packs_) bytes += (int64_t)b.size();
    return bytes;
}

const float* Executor::logits(int row) const {
    const Slice& out = model_->plan().ops.back().output;
    return rows_[out.rows].as<float>() + row * row_stride(model_->plan().rows[out.rows]);
}

float* Executor::row(const Slice& slice, int index) {
    const int64_t stride = row_stride(model_->plan().rows[slice.rows]);
    return rows_[slice.rows].as<float>() + index * stride + slice.offset;
}

PackTarget Executor::pack_target(int pack, int index) {
    const PackSpec& spec = model_->plan().packs[pack];
    const int width = kernels_.tokens, first = index / width * width;
    const int64_t offset = activation_bytes(spec.kind, first, ceil_div(spec.columns, kBlock));
    return {spec.kind, packs_[pack].data() + offset, index - first,
            std::min(width, num_rows_of(spec.selected) - first)};
}

// ---- a forward pass ---------------------------------------------------------------------------------

void Executor::forward(const std::vector<SequenceRows>& batch, const std::function<void()>& take_logits) {
    pool_->check_process();
    const std::lock_guard lock(mutex_);
    lay_out(batch);
    if (num_rows_ == 0) return take_logits();
    for (const auto& sequence : batch) sequence.cache->reserve(sequence.count);
    list_phases();
    if (profile.enabled) {
        run_profiled();
    } else {
        pool_->run(counts_, [this](int phase, int chunk) { run(phases_[phase], chunk); });
    }
    for (const auto& sequence : batch) sequence.cache->advance(sequence.count);
    take_logits();
}

void Executor::run_profiled() {
    std::vector<const char*> names;
    for (const Phase& phase : phases_) names.push_back(phase_name(phase.op->kind, phase.step));
    profile.begin(phases_.size());
    pool_->run(counts_, [this](int phase, int chunk) { profile.time(phase, [&] { run(phases_[phase], chunk); }); });
    profile.end(names);
}

void Executor::lay_out(const std::vector<SequenceRows>& batch) {
    const Plan& plan = model_->plan();
    row_list_.clear();
    selected_.clear();
    sequences_.clear();
    for (const auto& sequence : batch) {
        for (int i = 0; i < sequence.count; ++i) {
            const int32_t token = sequence.tokens[i];
            if (token < 0 || token >= plan.vocab_size)
                throw Error("invalid-option", "Token id " + std::to_string(token) + ": expected 0 to " +
                                                  std::to_string(plan.vocab_size - 1) + ", the vocabulary");
            const bool wanted =
                sequence.logits == Logits::all || (sequence.logits == Logits::last && i == sequence.count - 1);
            if (wanted) selected_.push_back((int)row_list_.size());
            row_list_.push_back({(int)sequences_.size(), token, sequence.cache->length() + i});
        }
        sequences_.push_back(&sequence);
    }
    num_rows_ = (int)row_list_.size();
    num_selected_ = (int)selected_.size();
    for (size_t i = 0; i < rows_.size(); ++i) {
        const auto& spec = plan.rows[i];
        // A block of slack: kernels read whole vectors of lanes at a row's end.
        const int64_t floats = num_rows_of(spec.selected) * row_stride(spec) + kBlock;
        rows_[i].reserve((size_t)floats * sizeof(float));
    }
    for (size_t i = 0; i < packs_.size(); ++i) {
        const auto& spec = plan.packs[i];
        packs_[i].reserve(
            (size_t)activation_bytes(spec.kind, num_rows_of(spec.selected), ceil_div(spec.columns, kBlock)));
    }
    angles_.reserve(plan.ropes.size() * (size_t)num_rows_ * (size_t)plan.head_dim * sizeof(float));
}

void Executor::list_phases() {
    const Plan& plan = model_->plan();
    phases_.clear();
    counts_.clear();
    units_.clear();
    const auto add = [&](const Op& op, int step) {
        phases_.push_back({&op, step});
        counts_.push_back(chunks_of(phases_.back()));
    };
    for (const Op& op : plan.ops) {
        if (op.kind != OpKind::attention) {
            add(op, 0);
            continue;
        }
        // Every layer attends over the same positions: one list of units serves them all.
        if (units_.empty()) list_attention_units(op);
        add(op, 0);
        add(op, 1);
        if (splits_apart_) add(op, 2);
    }
}

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
                    units_.push_back(
                        {s, kv_head, first_row + token, tokens, split, split + step, used, used + unit_floats});
                    used += unit_floats + attention_scratch_floats(tokens * group, padded);
                }
            }
    states_.reserve((size_t)used * sizeof(float));
}

// ---- chunks -----------------------------------------------------------------------------------------

// Whole tiles of tokens: two threads never write into one.
int Executor::row_chunks(int rows) const {
    return (int)std::min(ceil_div(rows, kernels_.tokens), (int64_t)pool_->size() * kChunksPerThread);
}

void Executor::for_rows_of_chunk(int chunk, int rows, const auto& body) const {
    const int64_t chunks = row_chunks(rows), tiles = ceil_div(rows, kernels_.tokens);
    const int begin = (int)(tiles * chunk / chunks) * kernels_.tokens;
    const int end = std::min(rows, (int)(tiles * (chunk + 1) / chunks) * kernels_.tokens);
    for (int i = begin; i < end; ++i) body(i);
}

Executor::Blocking Executor::blocking(const Op& op) const {
    const Matrix& m = model_->matrix(op.matrix);
    const FormatInfo info = format_info(m.format);
    const int tokens = num_rows_of(model_->plan().packs[op.pack].selected);
    const int64_t tile_bytes = m.blocks * info.tile_block_bytes;
    Blocking b;
    b.group_tokens = tokens;
    b.panel_tiles = std::max<int64_t>(1, kPanelBytes / tile_bytes);
    if (tokens > kernels_.tokens) {
        const int64_t token_bytes = activation_bytes(info.activation, 1, m.blocks);
        b.group_tokens = (int)std::clamp<int64_t>(kGroupBytes / token_bytes, kernels_.tokens, 64);
        b.group_tokens = b.group_tokens / kernels_.tokens * kernels_.tokens;
    }
    b.groups = (int)ceil_div(tokens, b.group_tokens);
    const int64_t wanted = ceil_div((int64_t)pool_->size() * kChunksPerThread, b.groups);
    b.panel_tiles = std::clamp<int64_t>(m.tiles / wanted, 1, b.panel_tiles);
    b.panels = ceil_div(m.tiles, b.panel_tiles);
    return b;
}

int Executor::chunks_of(const Phase& phase) const {
    const Op& op = *phase.op;
    const Plan& plan = model_->plan();
    switch (op.kind) {
        case OpKind::embed: return row_chunks(num_rows_);
        case OpKind::select: return row_chunks(num_selected_);
        case OpKind::pack:
        case OpKind::rms_norm: return row_chunks(num_rows_of(plan.packs[op.pack].selected));
        case OpKind::silu_mul: {
            const int rows = num_rows_of(plan.packs[op.pack].selected);
            return row_chunks(rows) * column_parts(op, rows);
        }
        case OpKind::linear: {
            if (num_rows_of(plan.packs[op.pack].selected) == 0) return 0;
            const Blocking b = blocking(op);
            return (int)std::min<int64_t>(b.panels * b.groups, ThreadPool::kMaxChunks);
        }
        case OpKind::attention:
            if (phase.step == 1) return (int)std::min<size_t>(units_.size(), ThreadPool::kMaxChunks);
            return row_chunks(num_rows_);
    }
    return 0;
}

void Executor::run(const Phase& phase, int chunk) {
    const Op& op = *phase.op;
    const Plan& plan = model_->plan();
    switch (op.kind) {
        case OpKind::embed: {
            const Matrix& m = model_->matrix(op.matrix);
            for_rows_of_chunk(chunk, num_rows_, [&](int i) {
                float* angles = angles_.as<float>() + (int64_t)i * plan.head_dim;
                for (const auto& rope : plan.ropes) {
                    rotation(row_list_[i].position, rope, angles, angles + plan.head_dim / 2);
                    angles += (int64_t)num_rows_ * plan.head_dim;
                }
                kernels_.unpack_row[(int)m.format](m.data, m.blocks, row_list_[i].token, row(op.output, i));
            });
            break;
        }
        case OpKind::select:
            for_rows_of_chunk(chunk, num_selected_, [&](int i) {
                std::memcpy(row(op.output, i), row(op.input, selected_[i]), (size_t)op.input.width * sizeof(float));
            });
            break;
        case OpKind::pack:
            for_rows_of_chunk(chunk, num_rows_of(plan.packs[op.pack].selected),
                              [&](int i) { kernels_.pack(row(op.input, i), op.input.width, pack_target(op.pack, i)); });
            break;
        case OpKind::rms_norm:
            for_rows_of_chunk(chunk, num_rows_of(plan.packs[op.pack].selected), [&](int i) {
                kernels_.rms_norm(row(op.input, i), model_->vector(op.vector), op.input.width, op.epsilon,
                                  pack_target(op.pack, i));
            });
            break;
        case OpKind::silu_mul: silu_mul(op, chunk); break;
        case OpKind::linear: {
            const Blocking b = blocking(op);
            const int64_t pieces = b.panels * b.groups, chunks = chunks_of(phase);
            for (int64_t piece = pieces * chunk / chunks; piece < pieces * (chunk + 1) / chunks; ++piece)
                run_linear(op, (int)piece);
            break;
        }
        case OpKind::attention:
            if (phase.step == 0) rotate_and_store(op, chunk);
            if (phase.step == 1) {
                const int64_t units = (int64_t)units_.size(), chunks = chunks_of(phase);
                for (int64_t u = units * chunk / chunks; u < units * (chunk + 1) / chunks; ++u) attend(op, units_[u]);
            }
            if (phase.step == 2) merge(op, chunk);
            break;
    }
}

// ---- operations that are more than a kernel a row ---------------------------------------------------

void Executor::run_linear(const Op& op, int piece) {
    const Matrix& m = model_->matrix(op.matrix);
    const Blocking b = blocking(op);
    const int tokens = num_rows_of(model_->plan().packs[op.pack].selected);
    const int64_t panel = piece / b.groups;
    const int group = piece % b.groups;
    MatmulArgs args;
    args.tiles = m.data;
    args.blocks = m.blocks;
    args.rows = m.rows;
    args.first_tile = panel * b.panel_tiles;
    args.last_tile = std::min(args.first_tile + b.panel_tiles, m.tiles);
    args.x = packs_[op.pack].data();
    args.first_token = group * b.group_tokens;
    args.last_token = std::min(args.first_token + b.group_tokens, tokens);
    args.num_tokens = tokens;
    args.bias = op.vector >= 0 ? model_->vector(op.vector) : nullptr;
    args.out = row(op.output, 0);
    args.out_stride = row_stride(model_->plan().rows[op.output.rows]);
    args.accumulate = op.accumulate;
    kernels_.matmul[(int)m.format](args);
}

// The exponentials of one row take a single thread longer than it takes to wake the others: rows that are too
// few for the threads are cut into columns, in whole blocks.
int Executor::column_parts(const Op& op, int rows) const {
    if (row_chunks(rows) >= pool_->size()) return 1;
    return (int)std::clamp<int64_t>(op.input.width / kColumnsWorthAChunk, 1, pool_->size());
}

void Executor::silu_mul(const Op& op, int chunk) {
    const PackSpec& spec = model_->plan().packs[op.pack];
    const int rows = num_rows_of(spec.selected), parts = column_parts(op, rows);
    const int64_t blocks = ceil_div(spec.columns, kBlock), part = chunk % parts;
    const int64_t first = blocks * part / parts, last = blocks * (part + 1) / parts;
    const int64_t offset = first * kBlock, columns = std::min(last * kBlock, spec.columns) - offset;
    for_rows_of_chunk(chunk / parts, rows, [&](int i) {
        PackTarget target = pack_target(op.pack, i);
        target.tile += activation_bytes(spec.kind, target.width, first);
        kernels_.silu_mul(row(op.input, i) + offset, row(op.second, i) + offset, columns, target);
    });
}

void Executor::rotate_and_store(const Op& op, int chunk) {
    const Plan& plan = model_->plan();
    for_rows_of_chunk(chunk, num_rows_, [&](int i) {
        float *q = row(op.input, i), *k = row(op.second, i), *v = row(op.third, i);
        if (op.rope >= 0) {
            const float* cos = angles_.as<float>() + ((int64_t)op.rope * num_rows_ + i) * plan.head_dim;
            const float* sin = cos + plan.head_dim / 2;
            kernels_.rope(q, op.heads, op.head_dim, cos, sin);
            kernels_.rope(k, op.kv_heads, op.head_dim, cos, sin);
        }
        const KvCache& cache = *sequences_[row_list_[i].sequence]->cache;
        const PagePool& pool = *cache.pool();
        const int64_t position = row_list_[i].position;
        uint8_t* page = cache.pages()[position / kPagePositions];
        for (int h = 0; h < op.kv_heads; ++h)
            kernels_.store_kv(k + (int64_t)h * op.head_dim, v + (int64_t)h * op.head_dim, op.head_dim,
                              pool.head_dim_padded(), (int)(position % kPagePositions),
                              page + pool.head_offset(op.layer, h));
    });
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
    args.head_dim_padded = pool.head_dim_padded();
    args.scale = op.scale;
    args.first_split = unit.first_split;
    args.last_split = unit.last_split;
    args.state = states_.as<float>() + unit.state;
    args.scratch = states_.as<float>() + unit.scratch;
    kernels_.attention(args);
    if (splits_apart_) return;
    for (int r = 0; r < args.rows; ++r)
        kernels_.finish_state(
            args.state + r * attention_state_floats(args.head_dim_padded), op.head_dim, args.head_dim_padded,
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
                kernels_.finish_state(into, op.head_dim, padded,
                                      row(op.output, i) + (int64_t)(unit.kv_head * group + g) * op.head_dim);
            }
        }
    });
}

}  // namespace inferno
