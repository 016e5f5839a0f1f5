#include "runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/float_environment.h"
#include "runtime/rotation.h"

namespace inferno {
namespace {

// Columns of an activation that are worth a chunk of their own: some two microseconds.
constexpr int64_t kColumnsWorthAChunk = 512;

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

float* Executor::workspace(int64_t floats) {
    thread_local Buffer buffer;
    buffer.reserve((size_t)floats * sizeof(float));
    return buffer.as<float>();
}

int64_t Executor::scratch_bytes() const {
    int64_t bytes = (int64_t)(angles_.size() + states_.size());
    for (const auto& b : rows_) bytes += (int64_t)b.size();
    for (const auto& b : packs_) bytes += (int64_t)b.size();
    return bytes;
}

const float* Executor::logits(int row) const {
    const Slice& out = model_->plan().ops.back().output;
    return rows_[out.rows].as<float>() + row * model_->plan().rows[out.rows].stride();
}

void Executor::hidden(int index, float* out) {
    const PackTarget target{Activation::f32, (uint8_t*)out, 0, 1};
    kernels_.rms_norm(row(last_norm_->input, index), model_->vector(last_norm_->vector), last_norm_->input.width,
                      last_norm_->epsilon, target);
}

float* Executor::row(const Slice& slice, int index) {
    const int64_t stride = model_->plan().rows[slice.rows].stride();
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
    const FloatEnvironment environment;  // for what `take_output` computes
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
        const int64_t floats = num_rows_of(spec.extent) * spec.stride() + kBlock;
        rows_[i].reserve((size_t)floats * sizeof(float));
    }
    for (size_t i = 0; i < packs_.size(); ++i) {
        const auto& spec = plan.packs[i];
        packs_[i].reserve((size_t)activation_bytes(spec.kind, num_rows_of(spec.extent), spec.columns));
    }
    routing_.resize((size_t)num_rows_of(Extent::routed));
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

// ---- chunks -----------------------------------------------------------------------------------------

// Whole tiles of tokens: two threads never write into one.
int Executor::row_chunks(int rows) const {
    return (int)std::min(ceil_div(rows, kernels_.tokens), (int64_t)pool_->size() * kChunksPerThread);
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
            if (phase.step == 1) routing_.group_by_expert(plan.experts, plan.experts_per_token);
            break;
        case OpKind::combine: combine(op, chunk); break;
    }
}

// ---- operations that are more than a kernel a row ---------------------------------------------------

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

}  // namespace inferno
