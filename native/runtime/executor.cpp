#include "runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "runtime/rotation.h"

namespace inferno {
namespace {

// A panel of weights and a group of activations stay in L2 together: 128 KB each fit the 256 KB of the
// smallest L2 that AVX2 machines have. A single tile of tokens reads its weights once, and wants long panels.
constexpr int64_t kPanelBytes = 128 << 10, kGroupBytes = 128 << 10;
constexpr int kGroupTokens = 64;
// Blocks of 256 columns are taken apart for each group, at the price of some three tokens' products: larger groups,
// which are read in order, at a few bytes a cycle, whatever cache they are in (docs/lab-notebook.md).
constexpr int64_t kExpandedGroupBytes = 1 << 20;
// Chunks a thread, at least: a thread that is slower, or put aside, leaves half of its share to others. With
// one token each chunk begins a stream from memory, which costs a microsecond: eight a thread instead of two
// cost SmolLM2 a sixth of its decode rate (docs/lab-notebook.md).
constexpr int kChunksPerThread = 2;
// Query rows a unit of attention: two to four register groups share a split's keys and values in L2.
constexpr int kUnitRows = 24;
constexpr int kMaxQueryRows = 512;
// Columns of an activation that are worth a chunk of their own: some two microseconds.
constexpr int64_t kColumnsWorthAChunk = 512;

// Row tiles of gates, and as many of ups, that a panel activates: with kGroupTokens, 32 KB to stay in L1 or L2.
constexpr int64_t kGatedTiles = 4;
// Row tiles that fill a block of activations.
constexpr int64_t kBlockTiles = kBlock / kTileRows;

// How a phase is called in a profile.
const char* phase_name(OpKind kind, int step) {
    if (kind == OpKind::attention && step == 0) return "rotate and store";
    if (kind == OpKind::attention && step == 2) return "merge splits";
    if (kind == OpKind::route && step == 1) return "group by expert";
    switch (kind) {
#define X(name) \
    case OpKind::name: return #name;
        INFERNO_OP_KINDS(X)
#undef X
    }
    return "";
}

bool is_activation(OpKind kind) {
    return kind == OpKind::silu_mul || kind == OpKind::gelu_mul || kind == OpKind::clamped_swiglu;
}

// Whole blocks: an embedding's row is unpacked block by block, and must not reach into the next row.
int64_t row_stride(const RowsSpec& spec) { return round_up(spec.columns, kBlock); }

int64_t num_splits(int64_t positions) { return ceil_div(positions, kSplit); }

// Memory of the thread that calls, for the length of a chunk.
float* workspace(int64_t floats) {
    thread_local Buffer buffer;
    buffer.reserve((size_t)floats * sizeof(float));
    return buffer.as<float>();
}

}  // namespace

Executor::Executor(std::shared_ptr<const Model> model, std::shared_ptr<ThreadPool> pool, const KernelTable& kernels)
    : model_(std::move(model)),
      pool_(std::move(pool)),
      kernels_(kernels),
      rows_(model_->plan().rows.size()),
      packs_(model_->plan().packs.size()) {
    for (const Op& op : model_->plan().ops)
        if (op.kind == OpKind::attention) check(op.heads / op.kv_heads <= kMaxQueryRows, "heads a key/value head");
    find_gated();
    find_last_norm();
}

void Executor::find_last_norm() {
    int selected = -1;
    for (const Op& op : model_->plan().ops) {
        if (op.kind == OpKind::select) selected = op.output.rows;
        if (op.kind == OpKind::rms_norm && op.input.rows == selected && selected >= 0) {
            last_norm_ = &op;
            return;
        }
    }
}

// Row buffers of which one half is always activated and multiplied by the other right after a product has
// filled both: the two operations become one phase, and the buffer is never needed. Not if they are to be rounded
// 256 at a time: panels of sixteen row tiles would be too few for the threads, and too large for the caches.
void Executor::find_gated() {
    const Plan& plan = model_->plan();
    std::vector<int> touched(plan.rows.size()), paired(plan.rows.size());
    for (size_t i = 0; i < plan.ops.size(); ++i) {
        const Op& op = plan.ops[i];
        for (const Slice* s : {&op.input, &op.second, &op.third, &op.output})
            if (s->rows >= 0) ++touched[s->rows];
        if (op.kind != OpKind::linear || op.accumulate || i + 1 == plan.ops.size()) continue;
        const Op& next = plan.ops[i + 1];
        const int64_t half = op.output.width / 2, offset = op.output.offset;
        if (is_activation(next.kind) && next.input.rows == op.output.rows && next.second.rows == op.output.rows &&
            next.input.width == half && next.input.offset == offset && next.second.offset == offset + half &&
            half % kBlock == 0 && activation_info(plan.packs[next.pack].kind).columns == kBlock)
            paired[op.output.rows] += 3;
    }
    for (size_t rows = 0; rows < touched.size(); ++rows)
        is_gated_.push_back(touched[rows] > 0 && touched[rows] == paired[rows]);
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

void Executor::hidden(int index, float* out) {
    const PackTarget target{Activation::f32, (uint8_t*)out, 0, 1};
    kernels_.rms_norm(row(last_norm_->input, index), model_->vector(last_norm_->vector), last_norm_->input.width,
                      last_norm_->epsilon, target);
}

float* Executor::row(const Slice& slice, int index) {
    const int64_t stride = row_stride(model_->plan().rows[slice.rows]);
    return rows_[slice.rows].as<float>() + index * stride + slice.offset;
}

PackTarget Executor::pack_target(int pack, int index) {
    const PackSpec& spec = model_->plan().packs[pack];
    // The tiles of routed rows begin anew with each expert.
    int begin = 0, end = num_rows_of(spec.extent);
    if (spec.extent == Extent::routed) {
        const auto next = std::upper_bound(routing_.first.begin(), routing_.first.end(), index);
        begin = *(next - 1), end = *next;
    }
    const int width = kernels_.tokens, first = begin + (index - begin) / width * width;
    const int64_t offset = activation_bytes(spec.kind, first, spec.columns);
    return {spec.kind, packs_[pack].data() + offset, index - first, std::min(width, end - first)};
}

// ---- a forward pass ---------------------------------------------------------------------------------

void Executor::forward(const std::vector<SequenceRows>& batch, const std::function<void()>& take_output,
                       Output output) {
    check(output == Output::logits || last_norm_, "a norm comes before the head");
    pool_->check_process();
    const std::lock_guard lock(mutex_);
    output_ = output;
    lay_out(batch);
    if (num_rows_ == 0) return take_output();
    for (const auto& sequence : batch) sequence.cache->reserve(sequence.count);
    list_phases();
    if (profile.enabled) {
        run_profiled();
    } else {
        pool_->run(counts_, [this](int phase, int chunk) { run(phases_[phase], chunk); });
    }
    for (const auto& sequence : batch) sequence.cache->advance(sequence.count);
    take_output();
}

void Executor::run_profiled() {
    std::vector<const char*> names;
    for (const Phase& phase : phases_)
        names.push_back(phase.calibrates ? "calibrate"
                        : phase.activate ? "gated linear"
                                         : phase_name(phase.op->kind, phase.step));
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
        const bool is_logits = (int)i == plan.ops.back().output.rows;
        if (is_gated_[i] || (is_logits && output_ == Output::hidden)) continue;
        // A block of slack: kernels read whole vectors of lanes at a row's end.
        const int64_t floats = num_rows_of(spec.extent) * row_stride(spec) + kBlock;
        rows_[i].reserve((size_t)floats * sizeof(float));
    }
    for (size_t i = 0; i < packs_.size(); ++i) {
        const auto& spec = plan.packs[i];
        packs_[i].reserve((size_t)activation_bytes(spec.kind, num_rows_of(spec.extent), spec.columns));
    }
    const size_t assignments = (size_t)num_rows_of(Extent::routed);
    routing_.experts.resize(assignments);
    routing_.weights.resize(assignments);
    routing_.rows.resize(assignments);
    routing_.places.resize(assignments);
    angles_.reserve(plan.ropes.size() * (size_t)num_rows_ * (size_t)plan.head_dim * sizeof(float));
}

void Executor::list_phases() {
    const Plan& plan = model_->plan();
    phases_.clear();
    counts_.clear();
    units_.clear();
    const auto add = [&](const Op& op, int step, const Op* activate = nullptr, bool calibrates = false) {
        phases_.push_back({&op, step, activate, calibrates});
        counts_.push_back(chunks_of(phases_.back()));
    };
    for (size_t i = 0; i < plan.ops.size(); ++i) {
        const Op& op = plan.ops[i];
        if (output_ == Output::hidden && &op == last_norm_) break;
        if (calibration.enabled && op.kind == OpKind::linear && plan.packs[op.pack].kind == Activation::f32)
            add(op, 0, nullptr, true);
        if (op.kind == OpKind::linear && is_gated_[op.output.rows]) {
            add(op, 0, &plan.ops[++i]);
            continue;
        }
        if (op.kind != OpKind::attention) {
            add(op, 0);
            if (op.kind == OpKind::route) add(op, 1);
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
                    units_.push_back({s, kv_head, first_row + token, tokens, split, split + step, used});
                    if (splits_apart_) used += unit_floats;
                }
            }
    states_.reserve((size_t)used * sizeof(float));
}

// ---- chunks -----------------------------------------------------------------------------------------

// Whole tiles of tokens: two threads never write into one.
int Executor::row_chunks(int rows) const {
    return (int)std::min(ceil_div(rows, kernels_.tokens), (int64_t)pool_->size() * kChunksPerThread);
}

// Rows are rotated and stored apart from one another, so tiles do not matter; fewer than these take no longer
// than it takes to wake a thread.
int Executor::store_chunks() const {
    constexpr int kRowsWorthAChunk = 2;
    return std::clamp(num_rows_ / kRowsWorthAChunk, 1, pool_->size() * kChunksPerThread);
}

void Executor::for_rows_of_chunk(int chunk, int rows, const auto& body) const {
    const int64_t chunks = row_chunks(rows), tiles = ceil_div(rows, kernels_.tokens);
    const int begin = (int)(tiles * chunk / chunks) * kernels_.tokens;
    const int end = std::min(rows, (int)(tiles * (chunk + 1) / chunks) * kernels_.tokens);
    for (int i = begin; i < end; ++i) body(i);
}

// For one of `batches` batches of about `tokens` rows.
Executor::Blocking Executor::blocking(const Phase& phase, int tokens, int batches) const {
    const Op& op = *phase.op;
    const Matrix& m = model_->matrix(op.matrix);
    const FormatInfo info = format_info(m.format);
    const int halves = phase.activate ? 2 : 1;
    Blocking b;
    b.tiles = m.tiles / halves;
    b.group_tokens = tokens;
    int64_t largest = b.tiles;
    if (tokens > kernels_.tokens) {
        const int64_t token_bytes = activation_bytes(info.activation, 1, m.columns);
        const int64_t group_bytes = info.expands ? kExpandedGroupBytes : kGroupBytes;
        const int most = info.expands ? kExpandedTokens : kGroupTokens;
        b.group_tokens = (int)std::clamp<int64_t>(group_bytes / token_bytes, kernels_.tokens, most);
        b.group_tokens = b.group_tokens / kernels_.tokens * kernels_.tokens;
        largest = kPanelBytes / (m.blocks * info.tile_block_bytes) / halves;
        if (phase.activate) largest = std::min(largest, kGatedTiles);
    }
    b.groups = (int)ceil_div(tokens, b.group_tokens);
    const int64_t wanted = ceil_div((int64_t)pool_->size() * kChunksPerThread, (int64_t)b.groups * batches);
    const int64_t unit = phase.activate ? kBlockTiles : 1;
    b.panel_tiles = std::max(std::min(b.tiles / wanted, largest) / unit, (int64_t)1) * unit;
    b.panels = ceil_div(b.tiles, b.panel_tiles);
    return b;
}

int Executor::chunks_of(const Phase& phase) const {
    const Op& op = *phase.op;
    const Plan& plan = model_->plan();
    switch (op.kind) {
        case OpKind::embed: return row_chunks(num_rows_);
        case OpKind::select: return row_chunks(num_selected_);
        case OpKind::pack:
        case OpKind::rms_norm: return row_chunks(num_rows_of(plan.packs[op.pack].extent));
        case OpKind::rms_norm_rows: return row_chunks(num_rows_of(extent_of(op.output)));
        case OpKind::silu_mul:
        case OpKind::gelu_mul:
        case OpKind::clamped_swiglu: {
            const int rows = num_rows_of(plan.packs[op.pack].extent);
            return row_chunks(rows) * column_parts(op.input.width, rows);
        }
        case OpKind::softcap: {
            const int rows = num_rows_of(extent_of(op.output));
            return row_chunks(rows) * column_parts(op.output.width, rows);
        }
        case OpKind::linear: {
            const int rows = num_rows_of(plan.packs[op.pack].extent);
            if (rows == 0) return 0;
            if (phase.calibrates) return (int)std::min(model_->matrix(op.matrix).blocks, (int64_t)pool_->size());
            // Which experts have rows shows on the way.
            if (plan.packs[op.pack].extent == Extent::routed) return pool_->size() * kChunksPerThread;
            const Blocking b = blocking(phase, rows, 1);
            return (int)std::min<int64_t>(b.panels * b.groups, ThreadPool::kMaxChunks);
        }
        case OpKind::attention:
            if (phase.step == 0) return store_chunks();
            if (phase.step == 1) return (int)std::min<size_t>(units_.size(), ThreadPool::kMaxChunks);
            return row_chunks(num_rows_);
        case OpKind::route: return phase.step == 1 ? 1 : row_chunks(num_rows_);
        case OpKind::combine: return row_chunks(num_rows_);
    }
    return 0;
}

// Chunks are claimed in turn. If the threads keep step, each finds its own next to one another, and where one
// chunk's weights end, the memory that was prefetched is the next one's.
int64_t Executor::in_stride(int64_t chunk, int64_t chunks) const {
    const int64_t threads = pool_->size(), thread = chunk % threads;
    return thread * (chunks / threads) + std::min(thread, chunks % threads) + chunk / threads;
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
                    float *cos = angles, *sin = angles + plan.head_dim / 2;
                    rotation(row_list_[i].position, rope.inverse_frequencies, cos, sin);
                    for (size_t p = 0; p < rope.inverse_frequencies.size(); ++p) {
                        cos[p] = cos[p] * rope.factor;
                        sin[p] = sin[p] * rope.factor;
                    }
                    angles += (int64_t)num_rows_ * plan.head_dim;
                }
                float* out = row(op.output, i);
                kernels_.unpack_row[(int)m.format](m.data, m.blocks, row_list_[i].token, out);
                for (int64_t c = 0; c < op.output.width; ++c) out[c] = out[c] * op.scale;
            });
            break;
        }
        case OpKind::select:
            for_rows_of_chunk(chunk, num_selected_, [&](int i) {
                std::memcpy(row(op.output, i), row(op.input, selected_[i]), (size_t)op.input.width * sizeof(float));
            });
            break;
        case OpKind::pack: {
            const bool spread = plan.packs[op.pack].extent == Extent::routed && extent_of(op.input) == Extent::tokens;
            for_rows_of_chunk(chunk, num_rows_of(plan.packs[op.pack].extent), [&](int i) {
                kernels_.pack(row(op.input, spread ? routing_.rows[i] : i), op.input.width, pack_target(op.pack, i));
            });
            break;
        }
        case OpKind::rms_norm:
            for_rows_of_chunk(chunk, num_rows_of(plan.packs[op.pack].extent), [&](int i) {
                kernels_.rms_norm(row(op.input, i), model_->vector(op.vector), op.input.width, op.epsilon,
                                  pack_target(op.pack, i));
            });
            break;
        case OpKind::rms_norm_rows:
            for_rows_of_chunk(chunk, num_rows_of(extent_of(op.output)), [&](int i) {
                for (int64_t c = 0; c < op.input.width; c += op.head_dim)
                    kernels_.rms_norm_rows(row(op.input, i) + c, model_->vector(op.vector), op.head_dim, op.epsilon,
                                           op.accumulate, row(op.output, i) + c);
            });
            break;
        case OpKind::silu_mul:
        case OpKind::gelu_mul:
        case OpKind::clamped_swiglu: activate_chunk(op, chunk); break;
        case OpKind::softcap: softcap(op, chunk); break;
        case OpKind::linear: {
            if (phase.calibrates) return calibrate(op, chunk);
            const int64_t chunks = chunks_of(phase);
            run_linear(phase, in_stride(chunk, chunks), chunks);
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
        case OpKind::route:
            if (phase.step == 0) choose_experts(op, chunk);
            if (phase.step == 1) group_by_expert();
            break;
        case OpKind::combine: combine(op, chunk); break;
    }
}

// ---- operations that are more than a kernel a row ---------------------------------------------------

// A panel of the matrix times a group of tokens; where the outputs go is for the caller to say.
MatmulArgs Executor::matmul_args(const Op& op, const Batch& batch, const Blocking& b, int64_t piece) {
    const Matrix& m = model_->matrix(op.matrix + batch.matrix);
    const int64_t panel = piece / b.groups;
    MatmulArgs args{};
    args.tiles = m.data;
    args.blocks = m.blocks;
    args.rows = m.rows;
    args.first_tile = panel * b.panel_tiles;
    args.last_tile = std::min(args.first_tile + b.panel_tiles, b.tiles);
    args.x = packs_[op.pack].data() + activation_bytes(model_->plan().packs[op.pack].kind, batch.first, m.columns);
    args.first_token = (int)(piece % b.groups) * b.group_tokens;
    args.num_tokens = batch.tokens;
    args.last_token = std::min(args.first_token + b.group_tokens, args.num_tokens);
    args.bias = op.vector >= 0 ? model_->vector(op.vector + batch.matrix) : nullptr;
    args.scale = op.scale;
    return args;
}

void Executor::calibrate(const Op& op, int chunk) {
    const Extent extent = model_->plan().packs[op.pack].extent;
    const int64_t blocks = model_->matrix(op.matrix).blocks, chunks = std::min(blocks, (int64_t)pool_->size());
    const int64_t first = blocks * chunk / chunks, last = blocks * (chunk + 1) / chunks;
    const auto add = [&](int matrix, int begin, int end) {
        if (chunk == 0) calibration.count(matrix, end - begin);
        for (int i = begin; i < end; ++i) {
            const PackTarget x = pack_target(op.pack, i);
            calibration.add(matrix, x.tile, x.width, x.slot, first, last);
        }
    };
    if (extent != Extent::routed) return add(op.matrix, 0, num_rows_of(extent));
    for (const int expert : routing_.busy) add(op.matrix + expert, routing_.first[expert], routing_.first[expert + 1]);
}

// The pieces of all batches, one after the other: of experts, only those with rows have their weights read.
void Executor::run_linear(const Phase& phase, int64_t chunk, int64_t chunks) {
    const Op& op = *phase.op;
    const Extent extent = model_->plan().packs[op.pack].extent;
    const bool routed = extent == Extent::routed;
    const int batches = routed ? (int)routing_.busy.size() : 1;
    const auto batch_of = [&](int i) -> Batch {
        if (!routed) return {0, 0, num_rows_of(extent)};
        const int expert = routing_.busy[i], first = routing_.first[expert];
        return {expert, first, routing_.first[expert + 1] - first};
    };
    int64_t pieces = 0;
    for (int i = 0; i < batches; ++i) {
        const Blocking b = blocking(phase, batch_of(i).tokens, batches);
        pieces += b.panels * b.groups;
    }
    const int64_t begin = pieces * chunk / chunks, end = pieces * (chunk + 1) / chunks;
    for (int64_t i = 0, first = 0, last; i < batches && first < end; ++i, first = last) {
        const Batch batch = batch_of((int)i);
        const Blocking b = blocking(phase, batch.tokens, batches);
        last = first + b.panels * b.groups;
        for (int64_t piece = std::max(begin, first); piece < std::min(end, last); ++piece)
            phase.activate ? run_gated_linear(phase, batch, b, piece - first)
                           : run_plain_linear(op, batch, b, piece - first);
    }
}

void Executor::run_plain_linear(const Op& op, const Batch& batch, const Blocking& b, int64_t piece) {
    MatmulArgs args = matmul_args(op, batch, b, piece);
    args.out = row(op.output, batch.first);
    args.out_stride = row_stride(model_->plan().rows[op.output.rows]);
    args.accumulate = op.accumulate;
    kernels_.matmul[(int)model_->matrix(op.matrix + batch.matrix).format](args);
}

// A panel of gates, the same panel of ups, and at once the blocks of activations that they make.
void Executor::run_gated_linear(const Phase& phase, const Batch& batch, const Blocking& b, int64_t piece) {
    const Op& op = *phase.op;
    const Matrix& m = model_->matrix(op.matrix + batch.matrix);
    MatmulArgs args = matmul_args(op, batch, b, piece);
    const int64_t tiles = args.last_tile - args.first_tile, first_column = args.first_tile * kTileRows;
    const int first_token = args.first_token, tokens = args.last_token - first_token;
    const float* const bias = args.bias;
    // Tiles, tokens and outputs counted from where the panel and the group begin.
    args.x += activation_bytes(format_info(m.format).activation, first_token, m.columns);
    args.first_token = 0, args.last_token = args.num_tokens = tokens;
    args.first_tile = 0, args.last_tile = tiles;
    args.rows = args.out_stride = tiles * kTileRows;
    float* const gates = workspace(2 * tokens * args.rows);
    float* const ups = gates + tokens * args.rows;
    for (float* half : {gates, ups}) {
        const int64_t tile = (half == ups ? b.tiles : 0) + first_column / kTileRows;
        args.tiles = m.data + tile * m.tile_bytes();
        if (bias) args.bias = bias + tile * kTileRows;
        args.out = half;
        kernels_.matmul[(int)m.format](args);
    }
    const Op& activation = *phase.activate;
    for (int t = 0; t < tokens; ++t) {
        PackTarget target = pack_target(activation.pack, batch.first + first_token + t);
        target.tile += activation_bytes(target.kind, target.width, first_column);
        activate(activation, gates + t * args.rows, ups + t * args.rows, args.rows, target);
    }
}

// The exponentials of one row take a single thread longer than it takes to wake the others: rows that are too
// few for the threads are cut into columns, in whole blocks.
int Executor::column_parts(int64_t columns, int rows) const {
    if (row_chunks(rows) >= pool_->size()) return 1;
    return (int)std::clamp<int64_t>(columns / kColumnsWorthAChunk, 1, pool_->size());
}

void Executor::activate(const Op& op, const float* gate, const float* up, int64_t columns, PackTarget to) const {
    if (op.kind == OpKind::silu_mul) kernels_.silu_mul(gate, up, columns, to);
    if (op.kind == OpKind::gelu_mul) kernels_.gelu_mul(gate, up, columns, to);
    if (op.kind == OpKind::clamped_swiglu) kernels_.clamped_swiglu(gate, up, columns, op.limit, to);
}

void Executor::activate_chunk(const Op& op, int chunk) {
    const PackSpec& spec = model_->plan().packs[op.pack];
    const int rows = num_rows_of(spec.extent), parts = column_parts(op.input.width, rows);
    const int block = activation_info(spec.kind).columns;
    const int64_t blocks = ceil_div(spec.columns, block), part = chunk % parts;
    const int64_t first = blocks * part / parts, last = blocks * (part + 1) / parts;
    const int64_t offset = first * block, columns = std::min(last * block, spec.columns) - offset;
    for_rows_of_chunk(chunk / parts, rows, [&](int i) {
        PackTarget target = pack_target(op.pack, i);
        target.tile += activation_bytes(spec.kind, target.width, offset);
        activate(op, row(op.input, i) + offset, row(op.second, i) + offset, columns, target);
    });
}

void Executor::softcap(const Op& op, int chunk) {
    const int rows = num_rows_of(extent_of(op.output)), parts = column_parts(op.output.width, rows);
    const int64_t blocks = ceil_div(op.output.width, kBlock), part = chunk % parts;
    const int64_t offset = blocks * part / parts * kBlock;
    const int64_t end = std::min(blocks * (part + 1) / parts * kBlock, op.output.width);
    for_rows_of_chunk(chunk / parts, rows,
                      [&](int i) { kernels_.softcap(row(op.output, i) + offset, end - offset, op.limit); });
}

void Executor::choose_experts(const Op& op, int chunk) {
    const Plan& plan = model_->plan();
    for_rows_of_chunk(chunk, num_rows_, [&](int i) {
        const size_t place = (size_t)i * plan.experts_per_token;
        kernels_.route(row(op.input, i), plan.experts, plan.experts_per_token, op.normalize, &routing_.experts[place],
                       &routing_.weights[place]);
    });
}

void Executor::group_by_expert() {
    Routing& r = routing_;
    const int experts = model_->plan().experts, chosen = model_->plan().experts_per_token;
    r.first.assign((size_t)experts + 1, 0);
    r.busy.clear();
    for (const int32_t expert : r.experts) ++r.first[expert + 1];
    for (int e = 0; e < experts; ++e) {
        if (r.first[e + 1] > 0) r.busy.push_back(e);
        r.first[e + 1] += r.first[e];
    }
    std::vector<int> next(r.first.begin(), r.first.end() - 1);
    for (size_t i = 0; i < r.experts.size(); ++i) {
        r.places[i] = next[r.experts[i]]++;
        r.rows[r.places[i]] = (int)i / chosen;
    }
}

void Executor::combine(const Op& op, int chunk) {
    const int chosen = model_->plan().experts_per_token;
    for_rows_of_chunk(chunk, num_rows_, [&](int i) {
        const float* rows[kMaxExperts];
        for (int c = 0; c < chosen; ++c) rows[c] = row(op.input, routing_.places[i * chosen + c]);
        kernels_.combine(rows, &routing_.weights[(size_t)i * chosen], chosen, op.input.width, op.accumulate,
                         row(op.output, i));
    });
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
