#include "runtime/model.h"

#include <cstring>

#include "base/check.h"
#include "kernels/table.h"

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
    for (const auto& rope : plan_.ropes)
        check(!rope.inverse_frequencies.empty() && (int64_t)rope.inverse_frequencies.size() * 2 <= plan_.head_dim,
              "a rope covers a head or its first part");
    check(plan_.experts >= 0 && plan_.experts <= kMaxExperts && plan_.experts_per_token >= 0 &&
              plan_.experts_per_token <= plan_.experts,
          "a token has some of the experts");
    const auto extent_of = [&](const Slice& s) { return plan_.rows[s.rows].extent; };
    bool is_routed = false;
    for (const Op& op : plan_.ops) {
        bool sound = false;
        switch (op.kind) {
            case OpKind::embed:
                sound = within(op.output) && matrix_of(op) && matrices_[op.matrix].columns == op.output.width &&
                        op.output.offset == 0 && matrices_[op.matrix].rows >= plan_.vocab_size &&
                        extent_of(op.output) == Extent::tokens;
                break;
            case OpKind::select:
                sound = within(op.input) && within(op.output) && op.input.width == op.output.width &&
                        extent_of(op.output) == Extent::selected && extent_of(op.input) == Extent::tokens;
                break;
            case OpKind::pack:
                sound = within(op.input) && pack_of(op, op.input.width) &&
                        (plan_.packs[op.pack].extent == extent_of(op.input) ||
                         (plan_.packs[op.pack].extent == Extent::routed && extent_of(op.input) == Extent::tokens)) &&
                        (plan_.packs[op.pack].extent != Extent::routed || is_routed);
                break;
            case OpKind::rms_norm:
                sound = within(op.input) && pack_of(op, op.input.width) && vector_of(op, op.input.width) &&
                        extent_of(op.input) != Extent::routed && plan_.packs[op.pack].extent == extent_of(op.input);
                break;
            case OpKind::rms_norm_rows:
                sound = within(op.input) && within(op.output) && op.input.width == op.output.width &&
                        extent_of(op.input) == extent_of(op.output) && extent_of(op.input) != Extent::routed &&
                        op.head_dim > 0 && op.input.width % op.head_dim == 0 && vector_of(op, op.head_dim);
                break;
            case OpKind::silu_mul:
            case OpKind::gelu_mul:
            case OpKind::clamped_swiglu:
                sound = within(op.input) && within(op.second) && op.input.width == op.second.width &&
                        pack_of(op, op.input.width) && extent_of(op.input) == extent_of(op.second) &&
                        plan_.packs[op.pack].extent == extent_of(op.input) &&
                        (extent_of(op.input) != Extent::routed || is_routed);
                break;
            case OpKind::linear: {
                sound = within(op.output) && op.pack >= 0 && op.pack < (int)plan_.packs.size() &&
                        plan_.packs[op.pack].extent == extent_of(op.output);
                if (!sound) break;
                const bool routed = extent_of(op.output) == Extent::routed;
                Op one = op;
                for (int e = 0; sound && e < (routed ? plan_.experts : 1);
                     ++e, ++one.matrix, one.vector += one.vector >= 0)
                    sound = matrix_of(one) && pack_of(one, matrices_[one.matrix].columns) &&
                            matrices_[one.matrix].rows == op.output.width &&
                            plan_.packs[op.pack].kind == format_info(matrices_[one.matrix].format).activation &&
                            (op.vector < 0 || vector_of(one, op.output.width));
                sound = sound && (!routed || is_routed);
                break;
            }
            case OpKind::softcap: sound = within(op.output) && op.output.offset == 0 && op.limit > 0.0f; break;
            case OpKind::route:
                sound = within(op.input) && extent_of(op.input) == Extent::tokens && plan_.experts_per_token > 0 &&
                        op.input.width == plan_.experts;
                is_routed = true;
                break;
            case OpKind::combine:
                sound = within(op.input) && within(op.output) && is_routed && op.input.width == op.output.width &&
                        extent_of(op.input) == Extent::routed && extent_of(op.output) == Extent::tokens;
                break;
            case OpKind::attention:
                sound = within(op.input) && within(op.second) && within(op.third) && within(op.output) &&
                        op.layer >= 0 && op.layer < plan_.num_layers && op.kv_heads == plan_.kv_heads &&
                        op.head_dim == plan_.head_dim && op.heads > 0 && op.heads % op.kv_heads == 0 &&
                        op.input.width == (int64_t)op.heads * op.head_dim && op.output.width == op.input.width &&
                        op.second.width == (int64_t)op.kv_heads * op.head_dim && op.third.width == op.second.width &&
                        op.rope < (int)plan_.ropes.size() && op.window >= 0 && op.limit >= 0.0f &&
                        extent_of(op.input) == Extent::tokens && extent_of(op.second) == Extent::tokens &&
                        extent_of(op.third) == Extent::tokens && extent_of(op.output) == Extent::tokens &&
                        (op.vector < 0 || vector_of(op, op.heads));
                break;
        }
        check(sound, "an operation's operands exist and agree");
    }
    const Op& last = plan_.ops.back();
    check((last.kind == OpKind::linear || last.kind == OpKind::softcap) && last.output.offset == 0 &&
              extent_of(last.output) == Extent::selected && last.output.width >= plan_.vocab_size,
          "the last operation writes the logits");
}

int64_t Model::weight_bytes() const {
    int64_t bytes = (int64_t)weights_.size();
    for (const auto& v : vectors_) bytes += (int64_t)v.size();
    return bytes;
}

}  // namespace inferno
