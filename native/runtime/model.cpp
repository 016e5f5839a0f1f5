#include "runtime/model.h"

#include <cstring>

#include "base/check.h"

namespace inferno {
Model::Model(Plan plan) : plan_(std::move(plan)) {
    check(plan_.vocab_size > 0 && !plan_.ops.empty(), "a plan has a vocabulary and operations");
    check(plan_.head_dim > 0 && plan_.head_dim % 8 == 0 && plan_.kv_heads > 0 && plan_.num_layers > 0,
          "head sizes are positive multiples of 8");
    // One piece of memory for all of them: each alone would round up to a huge page.
    int64_t bytes = 0;
    for (const auto& spec : plan_.matrices) {
        check(spec.rows > 0 && spec.columns > 0, "a matrix has rows and columns");
        matrices_.emplace_back(spec.format, spec.rows, spec.columns);
        bytes += round_up(matrices_.back().size(), 64);
    }
    weights_ = Buffer((size_t)bytes);
    uint8_t* place = weights_.data();
    for (auto& matrix : matrices_) {
        matrix.place(place);
        place += round_up(matrix.size(), 64);
    }
    for (auto& spec : plan_.vectors) {
        // Padded by a block, so that whole vectors of lanes can be read.
        Buffer values((spec.values.size() + kBlock) * sizeof(float));
        std::memset(values.data(), 0, values.size());
        std::memcpy(values.data(), spec.values.data(), spec.values.size() * sizeof(float));
        vectors_.push_back(std::move(values));
    }
    const auto within = [&](const Slice& s) {
        return s.rows >= 0 && s.rows < (int)plan_.rows.size() && s.offset >= 0 && s.width > 0 &&
               s.offset + s.width <= plan_.rows[s.rows].columns;
    };
    const auto pack_of = [&](const Op& op, int64_t columns) {
        return op.pack >= 0 && op.pack < (int)plan_.packs.size() && plan_.packs[op.pack].columns == columns;
    };
    const auto matrix_of = [&](const Op& op) { return op.matrix >= 0 && op.matrix < (int)matrices_.size(); };
    const auto vector_of = [&](const Op& op, int64_t size) {
        return op.vector >= 0 && op.vector < (int)vectors_.size() &&
               (int64_t)plan_.vectors[op.vector].values.size() == size;
    };
    for (const auto& rope : plan_.ropes) check((int)rope.size() * 2 == plan_.head_dim, "a rope covers a head");
    for (const Op& op : plan_.ops) {
        bool sound = false;
        switch (op.kind) {
            case OpKind::embed:
                sound = within(op.output) && matrix_of(op) && matrices_[op.matrix].columns == op.output.width &&
                        op.output.offset == 0 && matrices_[op.matrix].rows >= plan_.vocab_size;
                break;
            case OpKind::select:
                sound = within(op.input) && within(op.output) && op.input.width == op.output.width &&
                        plan_.rows[op.output.rows].selected && !plan_.rows[op.input.rows].selected;
                break;
            case OpKind::pack: sound = within(op.input) && pack_of(op, op.input.width); break;
            case OpKind::rms_norm:
                sound = within(op.input) && pack_of(op, op.input.width) && vector_of(op, op.input.width);
                break;
            case OpKind::silu_mul:
                sound = within(op.input) && within(op.second) && op.input.width == op.second.width &&
                        pack_of(op, op.input.width);
                break;
            case OpKind::linear:
                sound = within(op.output) && matrix_of(op) && pack_of(op, matrices_[op.matrix].columns) &&
                        matrices_[op.matrix].rows == op.output.width &&
                        plan_.packs[op.pack].kind == format_info(matrices_[op.matrix].format).activation &&
                        plan_.packs[op.pack].selected == plan_.rows[op.output.rows].selected &&
                        (op.vector < 0 || vector_of(op, op.output.width));
                break;
            case OpKind::attention:
                sound = within(op.input) && within(op.second) && within(op.third) && within(op.output) &&
                        op.layer >= 0 && op.layer < plan_.num_layers && op.kv_heads == plan_.kv_heads &&
                        op.head_dim == plan_.head_dim && op.heads > 0 && op.heads % op.kv_heads == 0 &&
                        op.input.width == (int64_t)op.heads * op.head_dim && op.output.width == op.input.width &&
                        op.second.width == (int64_t)op.kv_heads * op.head_dim && op.third.width == op.second.width &&
                        op.rope < (int)plan_.ropes.size();
                break;
        }
        check(sound, "an operation's operands exist and agree");
    }
    const Op& last = plan_.ops.back();
    check(last.kind == OpKind::linear && plan_.rows[last.output.rows].selected && last.output.offset == 0 &&
              last.output.width >= plan_.vocab_size,
          "the last operation writes the logits");
}

int64_t Model::weight_bytes() const {
    int64_t bytes = (int64_t)weights_.size();
    for (const auto& v : vectors_) bytes += (int64_t)v.size();
    return bytes;
}

}  // namespace inferno
