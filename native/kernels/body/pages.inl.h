// What attention does with the pages of a cache type (kernels/cache_types.h): store a position, score rows of
// queries against keys, add up values by weight. A score is one chain over the dimensions, or their blocks, and
// a value sum one chain over the positions, in a lane each: how rows are grouped does not touch the order.
#pragma once
#include "kernels/body/pack.inl.h"
#include "kernels/table.h"

namespace inferno {

template <class Isa>
INFERNO_INLINE typename Isa::F32 load_elements(const f16* p) {
    return Isa::load_f16(p);
}
template <class Isa>
INFERNO_INLINE typename Isa::F32 load_elements(const float* p) {
    return Isa::load(p);
}
template <class Isa>
INFERNO_INLINE typename Isa::F32 load_elements(const int8_t* p) {
    return Isa::load_int8(p);
}
template <class Isa>
INFERNO_INLINE void store_elements(f16* p, typename Isa::F32 x) {
    Isa::store_f16(p, x);
}
template <class Isa>
INFERNO_INLINE void store_elements(float* p, typename Isa::F32 x) {
    Isa::store(p, x);
}

// The first `rest` of 16 numbers, then zeros, none beyond what the type holds. A masked value is multiplied by
// zero, so it has to be finite; a masked key's score is replaced, so a key that is not a number stays one (as
// these orders of operands have it) and is seen.
template <class Isa, class Cache>
INFERNO_INLINE typename Isa::F32 bounded_key(const float* k, int rest) {
    if (rest <= 0) return Isa::zero();
    const auto key = Isa::keep_first(Isa::load(k), rest, 0.0f);
    return Isa::min(Isa::splat(Cache::kLargest), Isa::max(Isa::splat(-Cache::kLargest), key));
}
template <class Isa, class Cache>
INFERNO_INLINE typename Isa::F32 bounded_value(const float* v, int rest) {
    if (rest <= 0) return Isa::zero();
    const auto value = Isa::keep_first(Isa::load(v), rest, 0.0f);
    return Isa::min(Isa::max(value, Isa::splat(-Cache::kLargest)), Isa::splat(Cache::kLargest));
}

// scores[r][16] = q_r . k for 16 positions, R rows; queries (head_dim, R).
template <class Isa, int R, class Element>
void score_rows(const float* queries, const Element* keys, int head_dim, float scale, float* scores, int64_t ahead) {
    typename Isa::F32 acc[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r] = Isa::zero();
    for (int d = 0; d < head_dim; ++d) {
        Isa::prefetch((const uint8_t*)(keys + d * kKeyGroup) + ahead);
        const auto k = load_elements<Isa>(keys + d * kKeyGroup);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r] = Isa::fma(Isa::splat(queries[d * R + r]), k, acc[r]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) Isa::store(scores + r * kPagePositions, Isa::mul(acc[r], Isa::splat(scale)));
}

// scores[t][16 R] = q_t . k for 16 R positions, T rows of queries.
template <class Isa, int T, int R>
void score_tile(const Q8Block<T>* queries, const Q8_0::TileBlock* keys, int blocks, float scale, float* scores,
                int64_t ahead) {
    alignas(64) float acc[R][T][kTileRows] = {};
    for (int b = 0; b < blocks; ++b) {
        const Q8_0::TileBlock* tiles[R];
        for (int r = 0; r < R; ++r) {
            tiles[r] = keys + (int64_t)r * blocks + b;
            for (int line = 0; line < (int)sizeof(Q8_0::TileBlock); line += 64)
                Isa::prefetch((const uint8_t*)tiles[r] + line + ahead);
        }
        Q8_0::step<Isa, T>(tiles, queries[b], acc);
    }
    if constexpr (Isa::kHoldsCodes)
        for (int r = 0; r < R; ++r) settle<Isa>(acc[r], T);
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t)
            Isa::store(scores + t * kPagePositions + r * kKeyGroup, Isa::mul(Isa::load(acc[r][t]), Isa::splat(scale)));
}

// acc[r][16 dims] = acc * factor_r + sum over positions of p_r * v, R rows.
template <class Isa, int R, class Element>
void add_values(const float* weights, const float* factors, const Element* values, int positions, int stride,
                float* acc, int64_t acc_stride, int64_t ahead) {
    typename Isa::F32 sum[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r] = Isa::mul(Isa::load(acc + r * acc_stride), Isa::splat(factors[r]));
    for (int p = 0; p < positions; ++p) {
        Isa::prefetch((const uint8_t*)(values + (int64_t)p * stride) + ahead);
        const auto v = load_elements<Isa>(values + (int64_t)p * stride);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) sum[r] = Isa::fma(Isa::splat(weights[r * kPagePositions + p]), v, sum[r]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) Isa::store(acc + r * acc_stride, sum[r]);
}

// `page` is of one layer and head; `ahead` leads from a place in it to the same place in the next step's.
template <class Isa, class Cache>
struct Pages {
    using Element = typename Cache::Element;

    INFERNO_INLINE void store(const float* k, const float* v, int head_dim, int p, uint8_t* page) {
        const int padded = (int)round_up(head_dim, 16);
        Element* keys = (Element*)page + (int64_t)(p / kKeyGroup) * padded * kKeyGroup + p % kKeyGroup;
        Element* values = (Element*)(page + Cache::half_bytes(head_dim)) + (int64_t)p * padded;
        for (int d = 0; d < padded; d += 16) {
            Element lanes[16];
            store_elements<Isa>(lanes, bounded_key<Isa, Cache>(k + d, head_dim - d));
            for (int i = 0; i < 16; ++i) keys[(int64_t)(d + i) * kKeyGroup] = lanes[i];
            store_elements<Isa>(values + d, bounded_value<Isa, Cache>(v + d, head_dim - d));
        }
    }

    // Floats that a row of queries takes once it is prepared, at most head_dim padded to 16.
    INFERNO_INLINE int64_t query_floats(int head_dim) { return head_dim; }

    // (rows) pointers -> (head_dim, rows)
    INFERNO_INLINE void prepare(const float* const* queries, int rows, int head_dim, float* out) {
        for (int r = 0; r < rows; ++r)
            for (int d = 0; d < head_dim; ++d) out[d * rows + r] = queries[r][d];
    }

    // scores: (R, kPagePositions)
    template <int R>
    INFERNO_INLINE void score(const AttentionArgs& a, const float* queries, const uint8_t* page, int positions,
                              float* scores, int64_t ahead) {
        const Element* keys = (const Element*)page;
        for (int p = 0; p < positions; p += kKeyGroup)
            score_rows<Isa, R>(queries, keys + (int64_t)p * a.head_dim_padded, a.head_dim, a.scale, scores + p, ahead);
    }

    // state: R rows of value sums; weights: (R, kPagePositions)
    template <int R>
    INFERNO_INLINE void add(const AttentionArgs& a, const float* weights, const float* factors, const uint8_t* page,
                            int positions, float* state, int64_t stride, int64_t ahead) {
        const Element* values = (const Element*)(page + Cache::half_bytes(a.head_dim));
        for (int d = 0; d < a.head_dim_padded; d += 16)
            add_values<Isa, R>(weights, factors, values + d, positions, a.head_dim_padded, state + d, stride, ahead);
    }
};

// One step of `spread`: sums and differences of numbers kHalf apart.
template <class Isa, int kHalf>
INFERNO_INLINE void butterfly(float* x) {
    for (int i = 0; i < kBlock; i += 2 * kHalf)
        for (int j = i; j < i + kHalf; ++j) {
            const float a = x[j], b = x[j + kHalf];
            x[j] = a + b;
            x[j + kHalf] = a - b;
        }
    if constexpr (kHalf > 1) butterfly<Isa, kHalf / 2>(x);
}

// Queries are rounded to int8 as activations are, and multiplied in integers with keys that stand like the rows
// of a matrix of weights; a value's scale goes into its weight.
//
// Some models have keys with a few numbers a hundred times as large as the others, and the scale of a block would
// be theirs. So keys and queries are turned alike before they are rounded, which leaves their products as they
// are, by a Hadamard matrix, which spreads a single large number over the block (QuaRot, arXiv:2404.00456).
template <class Isa>
struct Pages<Isa, Q8_0Cache> {
    using Cache = Q8_0Cache;
    using F32 = typename Isa::F32;

    // A block times the Hadamard matrix and a power of two; those of keys and queries give 1/32, so that the
    // products of 32 numbers stay what they are.
    static constexpr float kSpreadKey = 1.0f / 8, kSpreadQuery = 1.0f / 4;
    INFERNO_INLINE void spread(F32& a, F32& b, float scale) {
        alignas(64) float x[kBlock];
        Isa::store(x, Isa::mul(a, Isa::splat(scale)));
        Isa::store(x + 16, Isa::mul(b, Isa::splat(scale)));
        butterfly<Isa, kBlock / 2>(x);
        a = Isa::load(x);
        b = Isa::load(x + 16);
    }

    INFERNO_INLINE F32 first_of(const float* x, int rest) {
        return rest > 0 ? Isa::keep_first(Isa::load(x), rest, 0.0f) : Isa::zero();
    }

    // The scale is rounded before values are divided by it. Where it is subnormal that may leave the largest
    // above 127, which is clipped.
    INFERNO_INLINE Q8_0::Block rounded(F32 a, F32 b) {
        const float amax = Isa::largest_magnitude(a, b);
        const bool finite = bits_of(amax) < kInfinityBits;
        if (!finite) a = Isa::zero(), b = Isa::zero();
        Q8_0::Block block;
        block.scale = f32_to_f16(finite ? amax / 127.0f : float_of(kNanBits));
        const float scale = f16_to_f32(block.scale);
        const auto inverse = Isa::splat(finite && scale > 0.0f ? 1.0f / scale : 0.0f);
        const auto lowest = Isa::splat(-127.0f), highest = Isa::splat(127.0f);
        int32_t sums[2];
        Isa::store_rounded(block.codes, Isa::min(Isa::max(Isa::mul(a, inverse), lowest), highest),
                           Isa::min(Isa::max(Isa::mul(b, inverse), lowest), highest), sums);
        return block;
    }

    INFERNO_INLINE void store(const float* k, const float* v, int head_dim, int p, uint8_t* page) {
        const int64_t blocks = ceil_div(head_dim, kBlock);
        auto* keys = (Cache::KeyBlock*)page + p / kKeyGroup * blocks;
        auto* values = (Cache::ValueBlock*)(page + Cache::half_bytes(head_dim));
        for (int b = 0; b < (int)blocks; ++b) {
            const int d = b * kBlock, rest = head_dim - d;
            auto first = bounded_key<Isa, Cache>(k + d, rest), second = bounded_key<Isa, Cache>(k + d + 16, rest - 16);
            spread(first, second, kSpreadKey);
            Q8_0::pack_row(rounded(first, second), p % kKeyGroup, keys[b]);
            const Q8_0::Block value =
                rounded(bounded_value<Isa, Cache>(v + d, rest), bounded_value<Isa, Cache>(v + d + 16, rest - 16));
            values[b].scale[p] = value.scale;
            std::memcpy(values[b].codes[p], value.codes, kBlock);
        }
    }

    INFERNO_INLINE int64_t query_floats(int head_dim) {
        return ceil_div(head_dim, kBlock) * (int64_t)(sizeof(Q8Block<1>) / sizeof(float));
    }

    // Rows of the next register tile, of `rest` that are left: tiles of even size.
    static constexpr int tile_rows(int rest) {
        const int tiles = (rest + Isa::kPartTokens - 1) / Isa::kPartTokens;
        return (rest + tiles - 1) / tiles;
    }

    INFERNO_INLINE void prepare(const float* const* queries, int rows, int head_dim, float* out) {
        for (int first = 0, width; first < rows; first += width) {
            width = tile_rows(rows - first);
            for (int r = 0; r < width; ++r) {
                const PackTarget to{Activation::q8, (uint8_t*)(out + first * query_floats(head_dim)), r, width};
                for (int d = 0; d < head_dim; d += kBlock) {
                    const float* const q = queries[first + r] + d;
                    auto low = first_of(q, head_dim - d), high = first_of(q + 16, head_dim - d - 16);
                    spread(low, high, kSpreadQuery);
                    pack_q8<Isa>(to, d / kBlock, low, high);
                }
            }
        }
    }

    template <int R, int First = 0>
    INFERNO_INLINE void score(const AttentionArgs& a, const float* queries, const uint8_t* page, int positions,
                              float* scores, int64_t ahead) {
        constexpr int T = tile_rows(R - First), kTiles = Isa::kTiles;
        const int blocks = (int)ceil_div(a.head_dim, kBlock), tiles = (positions + kKeyGroup - 1) / kKeyGroup;
        const auto* x = (const Q8Block<T>*)(queries + First * query_floats(a.head_dim));
        const auto* keys = (const Cache::KeyBlock*)page;
        float* const out = scores + First * kPagePositions;
        int tile = 0;
        for (; tile + kTiles <= tiles; tile += kTiles)
            score_tile<Isa, T, kTiles>(x, keys + tile * blocks, blocks, a.scale, out + tile * kKeyGroup, ahead);
        if constexpr (kTiles > 1)
            for (; tile < tiles; ++tile)
                score_tile<Isa, T, 1>(x, keys + tile * blocks, blocks, a.scale, out + tile * kKeyGroup, ahead);
        if constexpr (First + T < R) score<R, First + T>(a, queries, page, positions, scores, ahead);
    }

    template <int R>
    INFERNO_INLINE void add(const AttentionArgs& a, const float* weights, const float* factors, const uint8_t* page,
                            int positions, float* state, int64_t stride, int64_t ahead) {
        const auto* values = (const Cache::ValueBlock*)(page + Cache::half_bytes(a.head_dim));
        alignas(64) float scaled[R * kPagePositions];
        for (int d = 0; d < a.head_dim_padded; d += 16) {
            const Cache::ValueBlock& block = values[d / kBlock];
            for (int p = 0; d % kBlock == 0 && p < positions; p += 16) {
                const auto scale = Isa::load_f16(block.scale + p);
                for (int r = 0; r < R; ++r)
                    Isa::store(scaled + r * kPagePositions + p,
                               Isa::mul(Isa::load(weights + r * kPagePositions + p), scale));
            }
            add_values<Isa, R>(scaled, factors, &block.codes[0][d % kBlock], positions, kBlock, state + d, stride,
                               ahead);
        }
    }
};

}  // namespace inferno
