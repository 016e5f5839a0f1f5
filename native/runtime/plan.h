// What crosses from Python once, at load: a list of operations over numbered rows, packs, matrices and
// vectors. Plain data with a closed set of kinds; lowering/ writes it, the executor walks it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "quant/formats.h"

namespace inferno {

// kind, what it does. X(name)
#define INFERNO_OP_KINDS(X)                                                            \
    X(embed)     /* rows[output] = row `token` of matrix                            */ \
    X(select)    /* rows[output] = the rows of rows[input] whose logits are wanted  */ \
    X(pack)      /* packs[pack] = rows[input]                                       */ \
    X(rms_norm)  /* packs[pack] = rows[input] normalized, times vector              */ \
    X(silu_mul)  /* packs[pack] = silu(rows[input]) * rows[second]                  */ \
    X(linear)    /* rows[output] (+)= packs[pack] matrix^T + vector                 */ \
    X(attention) /* rows[output] = attention(q = input, k = second, v = third)      */

enum class OpKind : uint8_t {
#define X(name) name,
    INFERNO_OP_KINDS(X)
#undef X
};

// A slice of a row buffer: columns offset .. offset + width.
struct Slice {
    int rows = -1;
    int64_t offset = 0, width = 0;
};

struct Op {
    OpKind kind;
    Slice input, second, third, output;  // row buffers
    int pack = -1;                       // packed activations, read by linear and written by others
    int matrix = -1, vector = -1;        // vector: norm weight or bias, -1 for none
    bool accumulate = false;             // linear: add to the output (the residual stream)
    float epsilon = 0.0f;                // rms_norm
    // attention
    int layer = -1, heads = 0, kv_heads = 0, head_dim = 0, rope = -1;
    float scale = 0.0f;
};

struct PackSpec {
    Activation kind;
    int64_t columns;
    bool selected;  // holds only the rows whose logits are wanted
};

struct RowsSpec {
    int64_t columns;
    bool selected;
};

struct MatrixSpec {
    std::string name;
    Format format;
    int64_t rows, columns;
};

struct VectorSpec {
    std::string name;
    std::vector<float> values;
};

struct Plan {
    int64_t vocab_size = 0;
    int num_layers = 0, kv_heads = 0, head_dim = 0;
    std::vector<MatrixSpec> matrices;
    std::vector<VectorSpec> vectors;
    std::vector<RowsSpec> rows;
    std::vector<PackSpec> packs;
    std::vector<std::vector<float>> ropes;  // inverse frequencies, (head_dim / 2) each
    std::vector<Op> ops;                    // the last one writes the logits
};

}  // namespace inferno
