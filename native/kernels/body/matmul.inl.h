// Packed weights times packed activations.
//
//            16 rows (lanes)                    K is never split and each output has one accumulator,
//          +-----------------+                  so the float steps of an output are the same for any
//  blocks  |  block 0        |  x  T tokens     number of tokens, threads or lanes (one arithmetic).
//  of K    |  block 1 ...    |
//          +-----------------+
//
// Loop order: token tiles outside, the panel's row tiles inside: the panel (a few row tiles, chosen by
// the caller to fit L2) is reread from L2, a token tile's activations from L1. With one token the loop
// reads weights once, contiguously, at memory speed.
#pragma once
#include "kernels/table.h"

namespace inferno {

// Outputs of one row tile for `count` tokens: biased, scaled, stored.
template <class Isa>
INFERNO_INLINE void finish(const MatmulArgs& a, int64_t tile, int token, int count, const float (*acc)[kTileRows]) {
    const int64_t row = tile * kTileRows, valid = a.rows - row < kTileRows ? a.rows - row : kTileRows;
    for (int t = 0; t < count; ++t) {
        float* out = a.out + (token + t) * a.out_stride + row;
        if (valid == kTileRows) {
            auto y = Isa::load(acc[t]);
            if (a.bias) y = Isa::add(y, Isa::load(a.bias + row));
            y = Isa::mul(y, Isa::splat(a.scale));
            if (a.accumulate) y = Isa::add(Isa::load(out), y);
            Isa::store(out, y);
        } else {
            for (int i = 0; i < valid; ++i) {
                float y = acc[t][i];
                if (a.bias) y = y + a.bias[row + i];
                y = y * a.scale;
                out[i] = a.accumulate ? out[i] + y : y;
            }
        }
    }
}

// T tokens of a block: all that stand side by side, or part kPart of Isa::kTokens.
constexpr int kAll = -1;
template <class Isa, Activation kActivation, int T, int kPart>
struct TokenBlocks {
    using Block = typename ActivationBlock<kActivation, kPart == kAll ? T : Isa::kTokens>::type;
    const Block* blocks;
    INFERNO_INLINE TokenBlocks of(const uint8_t* x) { return {(const Block*)x}; }
    decltype(auto) operator[](int64_t b) const {
        if constexpr (kPart == kAll) {
            return (blocks[b]);  // a reference
        } else {
            auto all = tokens_of<kActivation>(blocks + b, Isa::kTokens);
            return decltype(all)::from(all, kPart * T);
        }
    }
};

// R row tiles from `tile` on, T tokens, all or a part of those that stand side by side from `token` on.
template <class Isa, class Format, int T, int R, int kPart>
void matmul_tile(const MatmulArgs& a, int64_t tile, const uint8_t* x, int token) {
    using W = typename Format::TileBlock;
    const W* w = (const W*)a.tiles + tile * a.blocks;
    const auto xs = TokenBlocks<Isa, Format::kActivation, T, kPart>::of(x);
    // In memory and not in registers: for T > 2 they would not fit, and one load and store a block costs
    // less than spilling the integer sums.
    alignas(64) float acc[R][T][kTileRows] = {};
    for (int64_t b = 0; b < a.blocks; ++b) {
        const W* blocks[R];
        for (int r = 0; r < R; ++r) {
            blocks[r] = w + r * a.blocks + b;
            // Larger blocks ask for theirs as they go.
            if constexpr (Format::kColumns == kBlock) prefetch_part<Isa, 1>(blocks[r], 0);
        }
        Format::template step<Isa, T>(blocks, xs[b], acc);
    }
    if constexpr (kPart != kAll) token += kPart * T;
    for (int r = 0; r < R; ++r) finish<Isa>(a, tile + r, token, T, acc[r]);
}

// Row tiles from `begin` on, one at a time, for `width` <= T tokens.
template <class Isa, class Format, int T>
INFERNO_INLINE void matmul_tiles(const MatmulArgs& a, int64_t begin, const uint8_t* x, int token, int width) {
    if constexpr (T > 1) {
        if (width < T) return matmul_tiles<Isa, Format, T - 1>(a, begin, x, token, width);
    }
    for (int64_t tile = begin; tile < a.last_tile; ++tile) matmul_tile<Isa, Format, T, 1, kAll>(a, tile, x, token);
}

// A block for any number of tokens (quant/held.h).
template <class Isa, class Format, class Tokens>
INFERNO_INLINE void step_any(const typename Format::TileBlock& w, Tokens x, int tokens, float (*acc)[kTileRows]) {
    if constexpr (SuperBlock<Format>)
        step_super_block_held<Isa, Packed<Isa, Format>>(w, x, tokens, acc);
    else if constexpr (requires { Format::template step_held<Isa>(w, x, tokens, acc); })
        Format::template step_held<Isa>(w, x, tokens, acc);
    else
        step_held<Isa, Format>(w, x, tokens, acc);
}

// A row tile for `width` tokens: where codes are held, one code does for all widths.
template <class Isa, class Format>
void held_tile(const MatmulArgs& a, int64_t tile, const uint8_t* x, int token, int width) {
    const auto* w = (const typename Format::TileBlock*)a.tiles + tile * a.blocks;
    const int64_t bytes = activation_bytes(Format::kActivation, width, Format::kColumns);
    alignas(64) float acc[Isa::kTokens][kTileRows];
    std::memset(acc, 0, (size_t)width * sizeof acc[0]);
    for (int64_t b = 0; b < a.blocks; ++b, x += bytes) {
        if constexpr (Format::kColumns == kBlock) prefetch_part<Isa, 1>(w + b, 0);
        step_any<Isa, Format>(w[b], tokens_of<Format::kActivation>(x, width), width, acc);
    }
    if constexpr (Format::kActivation == Activation::q8) settle<Isa>(acc, width);
    finish<Isa>(a, tile, token, width, acc);
}

// Whether Isa::kTokens are cut into parts where there are more: two row tiles then share broadcasts, or totals stay in
// registers (quant/super_blocks.h). Floats have as many products as broadcasts.
template <class Isa, class Format>
constexpr bool kCutsTokens = Format::kActivation != Activation::f32 && Isa::kPartTokens < Isa::kTokens;

// All row tiles of the panel for `width` tokens, 1 <= width <= Isa::kTokens. Where they are all there are, they wait
// for the weights, which are read as one stream and unpacked once; else the panel is in L2.
template <class Isa, class Format>
INFERNO_INLINE void matmul_tokens(const MatmulArgs& a, const uint8_t* x, int token, int width) {
    int64_t tile = a.first_tile;
    if constexpr (Isa::kHoldsCodes) {
        for (; tile < a.last_tile; ++tile) held_tile<Isa, Format>(a, tile, x, token, width);
        return;
    } else {
        if constexpr (kCutsTokens<Isa, Format>) {
            constexpr int T = Isa::kPartTokens, R = Format::kColumns == kBlock ? Isa::kTiles : 1;
            if (width == Isa::kTokens && a.num_tokens > width) {
                const int64_t end = a.last_tile - (a.last_tile - tile) % R;
                unrolled<Isa::kTokens / T>([&](auto part) INFERNO_INLINE_LAMBDA {
                    for (int64_t t = tile; t < end; t += R) matmul_tile<Isa, Format, T, R, part>(a, t, x, token);
                });
                tile = end;
            }
        }
        matmul_tiles<Isa, Format, Isa::kTokens>(a, tile, x, token, width);
    }
}

// Blocks of a row tile that are taken apart at once: they stay in L1 while the tokens pass by, and the next ones are
// fetched meanwhile.
constexpr int kExpandedBlocks = 2;

// `blocks` expanded blocks of a row tile for T tokens, of whose blocks x is the first.
template <class Isa, class Format, int T, int kPart>
void expanded_tile(const typename Expanded<Isa, Format>::TileBlock* w, int64_t blocks, const uint8_t* x,
                   float (*acc)[kTileRows]) {
    const auto xs = TokenBlocks<Isa, Activation::q8_k, T, kPart>::of(x);
    for (int64_t b = 0; b < blocks; ++b) step_super_block<Isa, Expanded<Isa, Format>, T>(w[b], xs[b], acc);
}

template <class Isa, class Format>
void expanded_held_tile(const typename Expanded<Isa, Format>::TileBlock* w, int64_t blocks, const uint8_t* x,
                        float (*acc)[kTileRows], int width) {
    for (int64_t b = 0; b < blocks; ++b, x += width * sizeof(Q8KBlock<1>))
        step_super_block_held<Isa, Expanded<Isa, Format>>(w[b], Q8KTokens::of(x, width), width, acc);
}

// For `width` tokens, 1 <= width <= T, from block `first` of theirs on.
template <class Isa, class Format, int T>
INFERNO_INLINE void expanded_tokens(const typename Expanded<Isa, Format>::TileBlock* w, int64_t first, int64_t blocks,
                                    const uint8_t* x, float (*acc)[kTileRows], int width) {
    if constexpr (Isa::kHoldsCodes) {
        expanded_held_tile<Isa, Format>(w, blocks, x + first * width * (int64_t)sizeof(Q8KBlock<1>), acc, width);
    } else {
        if constexpr (T > 1) {
            if (width < T) return expanded_tokens<Isa, Format, T - 1>(w, first, blocks, x, acc, width);
        }
        x += first * (int64_t)sizeof(Q8KBlock<T>);
        if constexpr (kCutsTokens<Isa, Format> && T == Isa::kTokens)
            unrolled<T / Isa::kPartTokens>([&](auto part) INFERNO_INLINE_LAMBDA {
                constexpr int kWidth = Isa::kPartTokens;
                expanded_tile<Isa, Format, kWidth, part>(w, blocks, x, acc + part * kWidth);
            });
        else
            expanded_tile<Isa, Format, T, kAll>(w, blocks, x, acc);
    }
}

// Many tokens times blocks of 256 columns: each is taken apart once for all of them.
template <class Isa, class Format>
void matmul_expanded(const MatmulArgs& a, int tokens) {
    constexpr int T = Isa::kTokens;
    constexpr int kNextLines = (kExpandedBlocks * (int)sizeof(typename Format::TileBlock) + 63) / 64;
    const int64_t bytes = activation_bytes(Format::kActivation, 1, a.blocks * Format::kColumns);
    typename Expanded<Isa, Format>::TileBlock expanded[kExpandedBlocks];
    for (int64_t tile = a.first_tile; tile < a.last_tile; ++tile) {
        const auto* w = (const typename Format::TileBlock*)a.tiles + tile * a.blocks;
        for (int done = 0; done < tokens; done += kExpandedTokens) {
            const int count = tokens - done < kExpandedTokens ? tokens - done : kExpandedTokens;
            const int begin = a.first_token + done;
            alignas(64) float acc[kExpandedTokens][kTileRows];
            std::memset(acc, 0, (size_t)count * sizeof acc[0]);
            for (int64_t first = 0; first < a.blocks; first += kExpandedBlocks) {
                const int64_t blocks = a.blocks - first < kExpandedBlocks ? a.blocks - first : kExpandedBlocks;
                for (int64_t b = 0; b < blocks; ++b) Expanded<Isa, Format>::expand(w[first + b], expanded[b]);
                const char* const next = (const char*)(w + first + blocks);
                for (int t = 0; t < count; t += T) {
                    const int width = count - t < T ? count - t : T;
                    const bool last = first + blocks == a.blocks;
                    // Each tile of tokens asks for its share of the next blocks, or all would wait for them at once.
                    for (int line = kNextLines * t / count; line < kNextLines * (t + width) / count; ++line)
                        Isa::prefetch(next + 64 * line);
                    // A line and a page of each output: they arrive while the products are summed.
                    for (int i = 0; last && i < width; ++i)
                        Isa::prefetch(a.out + (begin + t + i) * a.out_stride + tile * kTileRows);
                    expanded_tokens<Isa, Format, T>(expanded, first, blocks, a.x + (begin + t) * bytes, acc + t, width);
                    if (last) finish<Isa>(a, tile, begin + t, width, acc + t);
                }
            }
        }
    }
}

template <class Isa, class Format>
void matmul(const MatmulArgs& a) {
    constexpr int T = Isa::kTokens;
    if (a.num_tokens <= T) return matmul_tokens<Isa, Format>(a, a.x, 0, a.num_tokens);
    if constexpr (SuperBlock<Format>) {
        const int tokens = (a.last_token < a.num_tokens ? a.last_token : a.num_tokens) - a.first_token;
        if (tokens >= Isa::kExpandsFrom) return matmul_expanded<Isa, Format>(a, tokens);
    }
    const int64_t bytes = activation_bytes(Format::kActivation, 1, a.blocks * Format::kColumns);
    for (int token = a.first_token; token < a.last_token; token += T) {
        const int width = a.num_tokens - token < T ? a.num_tokens - token : T;
        matmul_tokens<Isa, Format>(a, a.x + token * bytes, token, width);
    }
}

template <class Isa, class Format>
void unpack_row(const uint8_t* tiles, int64_t blocks, int64_t row, float* out) {
    const auto* tile = (const typename Format::TileBlock*)tiles + row / kTileRows * blocks;
    for (int64_t b = 0; b < blocks; ++b) {
        typename Format::Block block;
        Format::unpack_row(tile[b], (int)(row % kTileRows), block);
        Format::decode(block, out + b * Format::kColumns);
    }
}

}  // namespace inferno
