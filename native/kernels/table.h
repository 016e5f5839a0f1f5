// The only door to the kernels: one table per ISA, chosen once when a model is loaded.
// Every function is bit-equal in every table. Kernels know no models, threads or Python; they assume
// their preconditions, which are checked when a plan is built.
#pragma once
#include "kernels/cache_types.h"
#include "kernels/isa/isas.h"
#include "quant/formats.h"

namespace inferno {

// Rows [first_tile * 16, ...) of a packed matrix times the tokens of some activation tiles.
struct MatmulArgs {
    const uint8_t* tiles;  // packed weights, tile 0
    int64_t blocks;        // of a row, in the format's columns
    int64_t rows;          // weight rows, before padding to 16
    int64_t first_tile, last_tile;
    const uint8_t* x;                         // packed activations, token 0
    int first_token, last_token, num_tokens;  // first_token is a multiple of the table's `tokens`
    const float* bias;                        // (rows) or null
    float* out;                               // (num_tokens, out_stride)
    int64_t out_stride;
    bool accumulate;     // out += … instead of out =
    float scale = 1.0f;  // of x W^T + bias
};

// One token's row on its way into a tile of packed activations.
struct PackTarget {
    Activation kind;
    uint8_t* tile;  // first byte of the tile
    int slot;       // which of the tile's tokens
    int width;      // tokens in the tile
};

// Queries of one (sequence, key/value head): `rows` = tokens x group heads, row r = token r / group.
struct AttentionArgs {
    const float* const* queries;  // (rows) pointers to (head_dim_padded), zero-padded
    int rows, group;
    int64_t first_position;       // absolute position of the first token of the tile
    const uint8_t* const* pages;  // page p holds positions 64p .. 64p + 63
    int64_t page_offset;          // of this layer and head within a page
    int head_dim, head_dim_padded;
    float scale;
    int64_t window;                   // positions a token sees, itself the last; 0 for all
    float softcap;                    // of the scores; 0 for none
    int64_t first_split, last_split;  // splits of kSplit positions to visit
    // States of the softmax, merged over the splits visited: (rows, head_dim_padded + 16) floats each,
    // value sums first, then the running maximum and the running sum.
    float* state;
    float* scratch;  // attention_scratch_floats(rows, head_dim_padded): the states of a split, the queries
};

constexpr int kSplit = 512;  // positions after which the softmax starts afresh and is merged

// Rows that share a load of keys and values, at most: each instruction set has its own number (kGroupRows).
constexpr int kMaxGroupRows = 12;

// Tokens for which a block of 256 columns is taken apart at once (quant/super_blocks.h).
constexpr int kExpandedTokens = 128;

constexpr int kMaxExperts = 1024;  // what `route` can keep account of

constexpr int kProbeChains = 4;  // of 16 lanes, eight registers on AVX2: two multipliers of latency four

INFERNO_INLINE int64_t attention_state_floats(int head_dim_padded) { return head_dim_padded + 16; }
INFERNO_INLINE int64_t attention_scratch_floats(int rows, int head_dim_padded) {
    return rows * (attention_state_floats(head_dim_padded) + head_dim_padded);
}

struct KernelTable {
    const char* name;
    int tokens;  // tokens of a register tile

    // (out rows of `tiles`) x (tokens)
    void (*matmul[kNumFormats])(const MatmulArgs&);
    // out: (columns) f32, row `row` of a packed matrix
    void (*unpack_row[kNumFormats])(const uint8_t* tiles, int64_t blocks, int64_t row, float* out);
    // x: (columns) f32 -> packed
    void (*pack)(const float* x, int64_t columns, PackTarget to);
    // x / sqrt(mean(x^2) + epsilon) * weight -> packed
    void (*rms_norm)(const float* x, const float* weight, int64_t columns, float epsilon, PackTarget to);
    // out (+)= x / sqrt(mean(x^2) + epsilon) * weight; out may be x
    void (*rms_norm_rows)(const float* x, const float* weight, int64_t columns, float epsilon, bool accumulate,
                          float* out);
    // silu(gate) * up -> packed
    void (*silu_mul)(const float* gate, const float* up, int64_t columns, PackTarget to);
    // gelu(gate) * up -> packed, with the approximation by tanh
    void (*gelu_mul)(const float* gate, const float* up, int64_t columns, PackTarget to);
    // gate * sigmoid(1.702 gate) * (up + 1) -> packed, with gate <= limit and |up| <= limit
    void (*clamped_swiglu)(const float* gate, const float* up, int64_t columns, float limit, PackTarget to);
    // x[i] = limit * tanh(x[i] / limit)
    void (*softcap)(float* x, int64_t n, float limit);
    // The `chosen` largest of `experts` logits, ties to the lower: their numbers, ascending, and softmax weights,
    // over all or over themselves. `logits` is used up.
    void (*route)(float* logits, int experts, int chosen, bool normalize, int32_t* ids, float* weights);
    // out (+)= sum of weights[i] * rows[i] in the order of i
    void (*combine)(const float* const* rows, const float* weights, int count, int64_t columns, bool accumulate,
                    float* out);
    // x: (heads, head_dim), the first 2 `pairs` columns of each rotated in place: (i, i + pairs) is a pair
    void (*rope)(float* x, int heads, int head_dim, int pairs, const float* cos, const float* sin);
    // k, v: (head_dim) of one head -> column `position % 64` of a page's keys and values
    void (*store_kv[kNumCacheTypes])(const float* k, const float* v, int head_dim, int position, uint8_t* page);
    void (*attention[kNumCacheTypes])(const AttentionArgs&);
    // into = merge(into, from): softmax states of two neighbouring ranges, left to right
    void (*merge_states)(float* into, const float* from, int head_dim_padded);
    // out: (head_dim) = value sums / (running sum + e^sink); a sink of minus infinity is none
    void (*finish_state)(const float* state, int head_dim, int head_dim_padded, float sink, float* out);
    // out[i] = exp(x[i]), 0 below -87
    void (*exp)(const float* x, float* out, int64_t n);

    // Probes of the machine (body/probe.inl.h); the results keep the compiler from skipping the work.
    float (*probe_dot)(int64_t blocks);
    float (*probe_fma)(int64_t steps);
    float (*probe_read)(const uint8_t* data, int64_t bytes);
};

const KernelTable& kernels_scalar();
#define X(isa) const KernelTable& kernels_##isa();
INFERNO_ISAS(X)
#undef X

}  // namespace inferno
