// What matrices multiply, as mean squares by column: how much an error in a column of weights matters to the
// products. Off unless asked for; then each product is preceded by a phase that reads its activations.
#pragma once
#include <algorithm>
#include <vector>

#include "quant/activations.h"

namespace inferno {

class Calibration {
public:
    bool enabled = false;

    void begin(const std::vector<int64_t>& columns) {
        inputs_.clear();
        for (const int64_t count : columns) inputs_.push_back({std::vector<double>((size_t)count), 0});
    }
    void count(int matrix, int tokens) { inputs_[(size_t)matrix].tokens += tokens; }
    // Blocks first to last of the token at `slot` of a tile; token after token, so that the sums are the same
    // however blocks are shared among threads. Only floats are looked at: what reads rounded activations was
    // quantized before.
    void add(int matrix, const uint8_t* tile, int width, int slot, int64_t first, int64_t last) {
        std::vector<double>& sums = inputs_[(size_t)matrix].sums;
        for (int64_t block = first; block < last; ++block) {
            const float* x =
                (const float*)(tile + activation_bytes(Activation::f32, width, block * kBlock)) + slot * kBlock;
            const int64_t column = block * kBlock, columns = std::min<int64_t>(kBlock, (int64_t)sums.size() - column);
            for (int64_t k = 0; k < columns; ++k) sums[(size_t)(column + k)] += (double)x[k] * (double)x[k];
        }
    }
    // (columns,) of a matrix; empty if nothing was multiplied by it.
    std::vector<double> mean_squares(int matrix) const {
        const Input& input = inputs_[(size_t)matrix];
        if (input.tokens == 0) return {};
        std::vector<double> mean = input.sums;
        for (double& value : mean) value /= (double)input.tokens;
        return mean;
    }
    size_t size() const { return inputs_.size(); }

private:
    struct Input {
        std::vector<double> sums;
        int64_t tokens = 0;
    };
    std::vector<Input> inputs_;  // one a matrix
};

}  // namespace inferno
