// What crosses from Python once, at load: a list of operations over numbered rows, packs, matrices and
// vectors. Plain data with a closed set of kinds; lowering/ writes it, the executor walks it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "quant/formats.h"

namespace inferno {

// kind, what it does. X(name)
#define INFERNO_OP_KINDS(X)                                                                   \
    X(embed)          /* rows[output] = row `token` of matrix, times scale                 */ \
    X(select)         /* rows[output] = the rows of rows[input] whose logits are wanted    */ \
    X(pack)           /* packs[pack] = rows[input]                                         */ \
    X(rms_norm)       /* packs[pack] = rows[input] normalized, times vector                */ \
    X(rms_norm_rows)  /* rows[output] (+)= rows[input] normalized by head_dim columns,     */ \
                      /* times vector                                                      */ \
    X(silu_mul)       /* packs[pack] = silu(rows[input]) * rows[second]                    */ \
    X(gelu_mul)       /* packs[pack] = gelu(rows[input]) * rows[second], by tanh           */ \
    X(clamped_swiglu) /* packs[pack] = clamped SwiGLU of rows[input], rows[second]         */ \
    X(linear)         /* rows[output] (+)= (packs[pack] matrix^T + vector) * scale         */ \
    X(softcap)        /* rows[output] = limit * tanh(rows[output] / limit)                 */ \
    X(attention)      /* rows[output] = attention(q = input, k = second, v = third)        */ \
    X(route)          /* choose experts for each row by the logits rows[input]             */ \
    X(combine)        /* rows[output] (+)= the weighted sum of the experts' rows[input]    */

enum class OpKind : uint8_t {
#define X(name) name,
    INFERNO_OP_KINDS(X)
#undef X
};

// Which rows a buffer has: one a token; one a token whose logits are wanted; one a token and expert chosen
// for it by the last `route`, those of an expert side by side.
enum class Extent : uint8_t { tokens, selected, routed };

// A slice of a row buffer: columns offset .. offset + width.
struct Slice {
    int rows = -1;
    int64_t offset = 0, width = 0;
};

struct Op {
    OpKind kind;
    Slice input, second, third, output;  // row buffers
    int pack = -1;                       // packed activations, read by linear and written by others
    int matrix = -1, vector = -1;        // vector: norm weight, bias or sinks, -1 for none. Those of a routed
                                         // linear are the first expert's, and the others follow
    bool accumulate = false;             // add to the output (the residual stream)
    float epsilon = 0.0f;                // rms_norm
    float scale = 1.0f;                  // embed, linear; attention: of the scores
    float limit = 0.0f;                  // softcap; attention: softcap of the scores, 0 for none; clamped_swiglu
    bool normalize = false;              // route: the weights of the chosen experts add up to one
    // attention
    int layer = -1, heads = 0, kv_heads = 0, head_dim = 0, rope = -1;
    int64_t window = 0;  // positions each token sees, itself the last; 0 for all
};

struct PackSpec {
    Activation kind;
    int64_t columns;
    Extent extent;
};

struct RowsSpec {
    int64_t columns;
    Extent extent;
    // Whole blocks: an embedding's row is unpacked block by block, and must not reach into the next row.
    int64_t stride() const { return round_up(columns, kBlock); }
};

// A rotation of the first 2 * frequencies.size() columns of a head.
struct RopeSpec {
    std::vector<float> inverse_frequencies;
    float factor;  // of sines and cosines
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
    int experts = 0, experts_per_token = 0;  // of every `route`
    std::vector<MatrixSpec> matrices;
    std::vector<VectorSpec> vectors;
    std::vector<RowsSpec> rows;
    std::vector<PackSpec> packs;
    std::vector<RopeSpec> ropes;
    std::vector<Op> ops;  // the last one writes the logits
};

}  // namespace inferno
