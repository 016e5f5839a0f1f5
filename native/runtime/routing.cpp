// Mixture of experts: which rows go to which, and back.
#include "runtime/routing.h"

#include "runtime/executor.h"

namespace inferno {

void Routing::resize(size_t assignments) {
    experts.resize(assignments);
    weights.resize(assignments);
    rows.resize(assignments);
    places.resize(assignments);
}

void Routing::group_by_expert(int num_experts, int per_row) {
    first.assign((size_t)num_experts + 1, 0);
    busy.clear();
    for (const int32_t expert : experts) ++first[expert + 1];
    for (int e = 0; e < num_experts; ++e) {
        if (first[e + 1] > 0) busy.push_back(e);
        first[e + 1] += first[e];
    }
    std::vector<int> next(first.begin(), first.end() - 1);
    for (size_t i = 0; i < experts.size(); ++i) {
        places[i] = next[experts[i]]++;
        rows[places[i]] = (int)i / per_row;
    }
}

void Executor::choose_experts(const Op& op, int chunk) {
    const Plan& plan = model_->plan();
    for_rows_of_chunk(chunk, num_rows_, [&](int i) {
        const size_t place = (size_t)i * plan.experts_per_token;
        kernels_.route(row(op.input, i), plan.experts, plan.experts_per_token, op.normalize, &routing_.experts[place],
                       &routing_.weights[place]);
    });
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

}  // namespace inferno
