// A plan and its packed weights: immutable once loaded, shared by every session.
#pragma once
#include <vector>

#include "base/buffer.h"
#include "base/check.h"
#include "runtime/matrix.h"
#include "runtime/plan.h"

namespace inferno {

class Model {
public:
    explicit Model(Plan plan);  // checks every index and size of the plan
    Model(const Model&) = delete;

    const Plan& plan() const { return plan_; }
    const Matrix& matrix(int i) const { return matrices_[i]; }
    const float* vector(int i) const { return vectors_[i].as<float>(); }
    int64_t weight_bytes() const;

    // To be packed before the first forward pass.
    Matrix& matrix(int i) {
        check(i >= 0 && i < (int)matrices_.size(), "the matrix exists");
        return matrices_[i];
    }

private:
    Plan plan_;
    Buffer weights_;
    std::vector<Matrix> matrices_;  // in weights_
    std::vector<Buffer> vectors_;
};

}  // namespace inferno
