// Packed weights times packed activations.
//
//            16 rows (lanes)                    K is never split and each output has one accumulator,
//          +-----------------+                  so the float steps of an output are the same for any
//  K/32    |  block 0        |  x  T tokens     number of tokens, threads or lanes (one arithmetic).
//  blocks  |  block 1 ...    |
//          +-----------------+
//
// Loop order: token tiles outside, the panel's row tiles inside: the panel (a few row tiles, chosen by
// the caller to fit L2) is reread from L2, a token tile's activations from L1. With one token the loop
// reads weights once, contiguously, at memory speed.
#pragma once
#include "kernels/table.h"

namespace inferno {

template <int T, Activation kKind>
struct ActivationBlock {
    using type = F32Block<T>;
};
template <int T>
struct ActivationBlock<T, Activation::q8> {
    using type = Q8Block<T>;
};

template <class Isa, class Format, int T>
void matmul_tile(const MatmulArgs& a, int64_t tile, const uint8_t* x, int token) {
    using W = typename Format::TileBlock;
    using X = typename ActivationBlock<T, Format::kActivation>::type;
    const W* w = (const W*)a.tiles + tile * a.blocks;
    const X* xs = (const X*)x;
    // In memory and not in registers: for T > 2 they would not fit, and one load and store a block costs
    // less than spilling the integer sums.
    alignas(64) float acc[T][kTileRows] = {};
    for (int64_t b = 0; b < a.blocks; ++b) {
        // Two kilobytes ahead, line by line: the hardware prefetcher alone stops at each 4 KB page, and
        // four tokens' arithmetic leaves it too far behind (12 against 19 GB/s; docs/lab-notebook.md).
        const char* ahead = (const char*)(w + b) + 2304;
        for (size_t line = 0; line < sizeof(W); line += 64) Isa::prefetch(ahead + line);
        Format::template step<Isa, T>(w[b], xs[b], acc);
    }
    const int64_t row = tile * kTileRows;
    const int64_t valid = a.rows - row < kTileRows ? a.rows - row : kTileRows;
    for (int t = 0; t < T; ++t) {
        float* out = a.out + (token + t) * a.out_stride + row;
        if (valid == kTileRows) {
            auto y = Isa::load(acc[t]);
            if (a.bias) y = Isa::add(y, Isa::load(a.bias + row));
            if (a.accumulate) y = Isa::add(Isa::load(out), y);
            Isa::store(out, y);
        } else {
            for (int r = 0; r < valid; ++r) {
                float y = acc[t][r];
                if (a.bias) y = y + a.bias[row + r];
                out[r] = a.accumulate ? out[r] + y : y;
            }
        }
    }
}

template <class Isa, class Format, int T>
INFERNO_INLINE void matmul_remainder(const MatmulArgs& a, int64_t tile, const uint8_t* x, int token, int width) {
    if constexpr (T > 0) {
        if (width == T)
            matmul_tile<Isa, Format, T>(a, tile, x, token);
        else
            matmul_remainder<Isa, Format, T - 1>(a, tile, x, token, width);
    }
}

template <class Isa, class Format>
void matmul(const MatmulArgs& a) {
    constexpr int T = Isa::kTokens;
    const int64_t bytes = activation_bytes(Format::kActivation, 1, a.blocks);
    for (int token = a.first_token; token < a.last_token; token += T) {
        const uint8_t* x = a.x + token * bytes;
        const int width = a.num_tokens - token < T ? a.num_tokens - token : T;
        for (int64_t tile = a.first_tile; tile < a.last_tile; ++tile)
            matmul_remainder<Isa, Format, T>(a, tile, x, token, width);
    }
}

template <class Isa, class Format>
void unpack_row(const uint8_t* tiles, int64_t blocks, int64_t row, float* out) {
    const auto* tile = (const typename Format::TileBlock*)tiles + row / kTileRows * blocks;
    for (int64_t b = 0; b < blocks; ++b) {
        typename Format::Block block;
        Format::unpack_row(tile[b], (int)(row % kTileRows), block);
        Format::decode(block, out + b * kBlock);
    }
}

}  // namespace inferno
