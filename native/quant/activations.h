// What a matrix kernel reads on its right-hand side: the tokens of one register tile, side by side.
//
// A tile of T tokens (T = 1 .. Isa::kTokens) and K columns is K/32 blocks, each block
//   q8:   int8 q[T][32] | f32 scale[T] | i32 bias[T] | f32 sum[T]        44 T bytes
//   f32:  f32 x[T][32]                                                  128 T bytes
// so a kernel needs one base pointer and constant offsets. K is padded to 32 with zeros.
//   scale = amax/127 over the 32 values, q = round(x * 127/amax), to even on ties
//   bias  = -8 * sum(q): removes the +8 of Q4_0's stored nibbles as a start value
//   sum   = scale * sum(q), one rounding: multiplies the minimum of formats that have one
#pragma once
#include "base/numeric.h"

namespace inferno {

constexpr int kBlock = 32;     // columns a block, and what rows of floats are padded to
constexpr int kTileRows = 16;  // weight rows a tile: one virtual lane each

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
struct F32Block {
    static constexpr int kColumns = kBlock;
    float x[T][kBlock];
};

// The list of kinds, each with its block of T tokens.
#define INFERNO_ACTIVATIONS(X) \
    X(f32, F32Block)           \
    X(q8, Q8Block)

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
