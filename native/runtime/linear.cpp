// The executor's products: how one is cut into panels of weights times groups of tokens, and what each piece does.
#include <algorithm>

#include "runtime/executor.h"

namespace inferno {
namespace {

// A panel of weights and a group of activations stay in L2 together: 128 KB each fit the 256 KB of the
// smallest L2 that AVX2 machines have. A single tile of tokens reads its weights once, and wants long panels.
constexpr int64_t kPanelBytes = 128 << 10, kGroupBytes = 128 << 10;
constexpr int kGroupTokens = 64;
// Blocks of 256 columns are taken apart for each group, at the price of some three tokens' products: larger groups,
// which are read in order, at a few bytes a cycle, whatever cache they are in (docs/lab-notebook.md).
constexpr int64_t kExpandedGroupBytes = 1 << 20;
// Row tiles of gates, and as many of ups, that a panel activates: with kGroupTokens, 32 KB to stay in L1 or L2.
constexpr int64_t kGatedTiles = 4;
// Row tiles that fill a block of activations.
constexpr int64_t kBlockTiles = kBlock / kTileRows;

bool is_activation(OpKind kind) {
    return kind == OpKind::silu_mul || kind == OpKind::gelu_mul || kind == OpKind::clamped_swiglu;
}

}  // namespace

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

// Chunks are claimed in turn. If the threads keep step, each finds its own next to one another, and where one
// chunk's weights end, the memory that was prefetched is the next one's.
int64_t Executor::in_stride(int64_t chunk, int64_t chunks) const {
    const int64_t threads = pool_->size(), thread = chunk % threads;
    return thread * (chunks / threads) + std::min(thread, chunks % threads) + chunk / threads;
}

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
    args.out_stride = model_->plan().rows[op.output.rows].stride();
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

}  // namespace inferno
