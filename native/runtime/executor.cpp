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
}

// Row buffers of which one half is always activated and multiplied by the other right after a product has
// filled both: the two operations become one phase, and the buffer is never needed.
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
        if (next.kind == OpKind::silu_mul && next.input.rows == op.output.rows && next.second.rows == op.output.rows &&
            next.input.width == half && next.input.offset == offset && next.second.offset == offset + half &&
            half % kBlock == 0)
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
    for (const Phase& phase : phases_)
        names.push_back(phase.activate ? "gated linear" : phase_name(phase.op->kind, phase.step));
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
        if (is_gated_[i]) continue;
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
    const auto add = [&](const Op& op, int step, const Op* activate = nullptr) {
        phases_.push_back({&op, step, activate});
        counts_.push_back(chunks_of(phases_.back()));
    };
    for (size_t i = 0; i < plan.ops.size(); ++i) {
        const Op& op = plan.ops[i];
        if (op.kind == OpKind::linear && is_gated_[op.output.rows]) {
            add(op, 0, &plan.ops[++i]);
            continue;
        }
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

void Executor::for_rows_of_chunk(int chunk, int rows, const auto& body) const {
    const int64_t chunks = row_chunks(rows), tiles = ceil_div(rows, kernels_.tokens);
    const int begin = (int)(tiles * chunk / chunks) * kernels_.tokens;
    const int end = std::min(rows, (int)(tiles * (chunk + 1) / chunks) * kernels_.tokens);
    for (int i = begin; i < end; ++i) body(i);
}

Executor::Blocking Executor::blocking(const Phase& phase) const {
    const Op& op = *phase.op;
    const Matrix& m = model_->matrix(op.matrix);
    const FormatInfo info = format_info(m.format);
    const int tokens = num_rows_of(model_->plan().packs[op.pack].selected);
    const int halves = phase.activate ? 2 : 1;
    Blocking b;
    b.tiles = m.tiles / halves;
    b.group_tokens = tokens;
    int64_t largest = b.tiles;
    if (tokens > kernels_.tokens) {
        const int64_t token_bytes = activation_bytes(info.activation, 1, m.blocks);
        b.group_tokens = (int)std::clamp<int64_t>(kGroupBytes / token_bytes, kernels_.tokens, kGroupTokens);
        b.group_tokens = b.group_tokens / kernels_.tokens * kernels_.tokens;
        largest = kPanelBytes / (m.blocks * info.tile_block_bytes) / halves;
        if (phase.activate) largest = std::min(largest, kGatedTiles);
    }
    b.groups = (int)ceil_div(tokens, b.group_tokens);
    const int64_t wanted = ceil_div((int64_t)pool_->size() * kChunksPerThread, b.groups);
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
        case OpKind::rms_norm: return row_chunks(num_rows_of(plan.packs[op.pack].selected));
        case OpKind::silu_mul: {
            const int rows = num_rows_of(plan.packs[op.pack].selected);
            return row_chunks(rows) * column_parts(op, rows);
        }
        case OpKind::linear: {
            if (num_rows_of(plan.packs[op.pack].selected) == 0) return 0;
            const Blocking b = blocking(phase);
            return (int)std::min<int64_t>(b.panels * b.groups, ThreadPool::kMaxChunks);
        }
        case OpKind::attention:
            if (phase.step == 1) return (int)std::min<size_t>(units_.size(), ThreadPool::kMaxChunks);
            return row_chunks(num_rows_);
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
            const Blocking b = blocking(phase);
            const int64_t pieces = b.panels * b.groups, chunks = chunks_of(phase), own = in_stride(chunk, chunks);
            for (int64_t piece = pieces * own / chunks; piece < pieces * (own + 1) / chunks; ++piece)
                phase.activate ? run_gated_linear(phase, (int)piece) : run_linear(phase, (int)piece);
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

// A panel of the matrix times a group of tokens; where the outputs go is for the caller to say.
MatmulArgs Executor::matmul_args(const Op& op, const Blocking& b, int64_t panel, int group) {
    const Matrix& m = model_->matrix(op.matrix);
    MatmulArgs args{};
    args.tiles = m.data;
    args.blocks = m.blocks;
    args.rows = m.rows;
    args.first_tile = panel * b.panel_tiles;
    args.last_tile = std::min(args.first_tile + b.panel_tiles, b.tiles);
    args.x = packs_[op.pack].data();
    args.first_token = group * b.group_tokens;
    args.num_tokens = num_rows_of(model_->plan().packs[op.pack].selected);
    args.last_token = std::min(args.first_token + b.group_tokens, args.num_tokens);
    args.bias = op.vector >= 0 ? model_->vector(op.vector) : nullptr;
    return args;
}

void Executor::run_linear(const Phase& phase, int piece) {
    const Op& op = *phase.op;
    const Blocking b = blocking(phase);
    MatmulArgs args = matmul_args(op, b, piece / b.groups, piece % b.groups);
    args.out = row(op.output, 0);
    args.out_stride = row_stride(model_->plan().rows[op.output.rows]);
    args.accumulate = op.accumulate;
    kernels_.matmul[(int)model_->matrix(op.matrix).format](args);
}

// A panel of gates, the same panel of ups, and at once the blocks of activations that they make.
void Executor::run_gated_linear(const Phase& phase, int piece) {
    const Op& op = *phase.op;
    const Matrix& m = model_->matrix(op.matrix);
    const Blocking b = blocking(phase);
    MatmulArgs args = matmul_args(op, b, piece / b.groups, piece % b.groups);
    const int64_t tiles = args.last_tile - args.first_tile, first_column = args.first_tile * kTileRows;
    const int first_token = args.first_token, tokens = args.last_token - first_token;
    // Tiles, tokens and outputs counted from where the panel and the group begin.
    args.x += activation_bytes(format_info(m.format).activation, first_token, m.blocks);
    args.first_token = 0, args.last_token = args.num_tokens = tokens;
    args.first_tile = 0, args.last_tile = tiles;
    args.rows = args.out_stride = tiles * kTileRows;
    float* const gates = workspace(2 * tokens * args.rows);
    float* const ups = gates + tokens * args.rows;
    for (float* half : {gates, ups}) {
        const int64_t tile = (half == ups ? b.tiles : 0) + first_column / kTileRows;
        args.tiles = m.data + tile * m.tile_bytes();
        if (op.vector >= 0) args.bias = model_->vector(op.vector) + tile * kTileRows;
        args.out = half;
        kernels_.matmul[(int)m.format](args);
    }
    const int pack = phase.activate->pack;
    for (int t = 0; t < tokens; ++t) {
        PackTarget target = pack_target(pack, first_token + t);
        target.tile += activation_bytes(target.kind, target.width, first_column / kBlock);
        kernels_.silu_mul(gates + t * args.rows, ups + t * args.rows, args.rows, target);
    }
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
    const int64_t state_floats = args.rows * attention_state_floats(args.head_dim_padded);
    float* const space = workspace(state_floats + attention_scratch_floats(args.rows, args.head_dim_padded));
    args.state = splits_apart_ ? states_.as<float>() + unit.state : space;
    args.scratch = space + state_floats;
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
