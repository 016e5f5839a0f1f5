// What a matrix kernel reads on its right-hand side: the tokens of one register tile, side by side.
//
// A tile of T tokens (T = 1 .. Isa::kTokens) is blocks of 32 or 256 columns, each block
//   f32:   f32 x[T][32]                                                       128 T bytes
//   q8:    int8 q[T][32] | f32 scale[T] | i32 bias[T] | f32 sum[T]             44 T bytes
//   q8_k:  int8 q[T][256] | f32 scale[T] | i32 bias[T][16] | i16 sums16[T][16] | i16 sums32[T][8]
//                                                                             372 T bytes
// so a kernel needs one base pointer and constant offsets. Columns are padded to a block with zeros.
//   scale = amax/127 over the block's values, q = round(x * 127/amax), to even on ties
//   bias  = -8 * sum(q): removes the offset of unsigned codes as a start value (+8 in Q4_0)
//   sum   = scale * sum(q), one rounding: multiplies the minimum of formats that have one
//           in q8_k -32 * sum(q) of each 16 columns (32 is the offset of Q6_K)
//   sums16, sums32 = -sum(q) of each 16 and 32 columns: for the offsets and minima of sub-blocks, which
//           an int16 multiply-add takes in pairs. Four in a row stand in the order 0, 2, 1, 3: the even
//           bytes of a lane's four scales, then the odd ones (Isa::even_bytes).
#pragma once
#include "base/numeric.h"

namespace inferno {

constexpr int kBlock = 32;        // columns a block, and what rows of floats are padded to
constexpr int kSuperBlock = 256;  // columns a block of the K-quants
constexpr int kTileRows = 16;     // weight rows a tile: one virtual lane each

template <int T>
struct F32Block {
    static constexpr int kColumns = kBlock;
    float x[T][kBlock];
};

template <int T>
struct Q8Block {
    static constexpr int kColumns = kBlock;
    int8_t q[T][kBlock];
    float scale[T];
    int32_t bias[T];
    float sum[T];
};
static_assert(sizeof(Q8Block<1>) == 44 && sizeof(Q8Block<4>) == 176);

template <int T>
struct Q8KBlock {
    static constexpr int kColumns = kSuperBlock;
    int8_t q[T][kSuperBlock];
    float scale[T];
    int32_t bias[T][16];
    int16_t sums16[T][16];
    int16_t sums32[T][8];
};
static_assert(sizeof(Q8KBlock<1>) == 372 && sizeof(Q8KBlock<4>) == 1488);

// Where the sum of sub-block `i` stands.
INFERNO_INLINE int paired(int i) { return (i & ~3) | (i & 1) << 1 | (i >> 1 & 1); }

// The list of kinds, each with its block of T tokens.
#define INFERNO_ACTIVATIONS(X) \
    X(f32, F32Block)           \
    X(q8, Q8Block)             \
    X(q8_k, Q8KBlock)

enum class Activation : uint8_t {
#define X(kind, Block) kind,
    INFERNO_ACTIVATIONS(X)
#undef X
};

#define X(kind, Block) +1
constexpr int kNumActivations = 0 INFERNO_ACTIVATIONS(X);
#undef X

template <Activation kKind, int T>
struct ActivationBlock;
#define X(kind, Block)                            \
    template <int T>                              \
    struct ActivationBlock<Activation::kind, T> { \
        using type = Block<T>;                    \
    };
INFERNO_ACTIVATIONS(X)
#undef X

struct ActivationInfo {
    const char* name;
    int columns;          // of a block
    int64_t block_bytes;  // of one token
};

INFERNO_INLINE ActivationInfo activation_info(Activation activation) {
    switch (activation) {
#define X(kind, Block) \
    case Activation::kind: return {#kind, Block<1>::kColumns, sizeof(Block<1>)};
        INFERNO_ACTIVATIONS(X)
#undef X
    }
    return {};
}

INFERNO_INLINE int64_t activation_bytes(Activation kind, int tokens, int64_t columns) {
    const ActivationInfo info = activation_info(kind);
    return ceil_div(columns, info.columns) * tokens * info.block_bytes;
}

}  // namespace inferno
