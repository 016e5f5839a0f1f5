// Blocks of 256 columns whose 8 or 16 sub-blocks have integer scales, and integer minima or an offset: ggml's
// K-quants. One float step joins 256 columns to an output; all before it is exact in integers.
//
//   w = d * scale[i] * code - dmin * minimum[i]       or       w = d * scale[i] * (code - 2^kOffsetBits)
//
// A format says
//   kSubBlock               columns that share a scale: 16 or 32
//   kLargestCode            of its codes, which are unsigned
//   kHasMinima, else kOffsetBits
//   codes<Isa>(w, s, m, first, second)     columns 8m .. 8m + 3 and 8m + 4 .. 8m + 7 of the 32 columns from 32s
//   scales<Isa>(w, bytes)                  four sub-blocks' scales in each lane, int8
//   minima<Isa>(w, bytes)                  likewise
// and its tile block has f16 d[16], and dmin[16] if there are minima.
#pragma once
#include "quant/codes.h"

namespace inferno {

template <class Format>
concept SuperBlock = requires { Format::kSubBlock; };

// How ggml lays out a block's codes. `codes`: one a column, zero where nothing was split into it yet.

// Bytes of two nibbles: in each run of 2 kStride columns, byte i holds column i low and column kStride + i high.
template <int kStride>
INFERNO_INLINE void split_nibbles(const uint8_t* nibbles, uint8_t* codes) {
    for (int j = 0; j < kSuperBlock / 2; ++j) {
        uint8_t* low = codes + j / kStride * 2 * kStride + j % kStride;
        low[0] |= nibbles[j] & 15;
        low[kStride] |= nibbles[j] >> 4;
    }
}
template <int kStride>
INFERNO_INLINE void join_nibbles(const uint8_t* codes, uint8_t* nibbles) {
    for (int j = 0; j < kSuperBlock / 2; ++j) {
        const uint8_t* low = codes + j / kStride * 2 * kStride + j % kStride;
        nibbles[j] = (uint8_t)((low[0] & 15) | low[kStride] << 4);
    }
}

// Two bits of each code, from `shift` on: bits 2c and 2c + 1 of byte 32h + j are of column 128h + 32c + j.
INFERNO_INLINE void split_pairs(const uint8_t* pairs, int shift, uint8_t* codes) {
    for (int j = 0; j < kSuperBlock; ++j)
        codes[j] |= (uint8_t)((pairs[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3) << shift);
}
INFERNO_INLINE void join_pairs(const uint8_t* codes, int shift, uint8_t* pairs) {
    std::memset(pairs, 0, kSuperBlock / 4);
    for (int j = 0; j < kSuperBlock; ++j)
        pairs[j / 128 * 32 + j % 32] |= (uint8_t)((codes[j] >> shift & 3) << j % 128 / 32 * 2);
}

// The bit at `shift` of each code: bit s of byte j is of column 32s + j.
INFERNO_INLINE void split_bits(const uint8_t* bits, int shift, uint8_t* codes) {
    for (int j = 0; j < kSuperBlock; ++j) codes[j] |= (uint8_t)((bits[j % 32] >> j / 32 & 1) << shift);
}
INFERNO_INLINE void join_bits(const uint8_t* codes, int shift, uint8_t* bits) {
    std::memset(bits, 0, kSuperBlock / 8);
    for (int j = 0; j < kSuperBlock; ++j) bits[j % 32] |= (uint8_t)((codes[j] >> shift & 1) << j / 32);
}

// 256 columns' nibbles of 16 rows: line [s][m], 64 bytes, holds columns 32s + 8m .. + 3 in the low nibbles
// and + 4 .. + 7 in the high ones, so that half the lines of 32 columns are a sub-block of 16.
struct SuperNibbleTile {
    uint8_t codes[8][4][kTileRows][4];
};

INFERNO_INLINE void pack_super_nibbles(const uint8_t* codes, int row, SuperNibbleTile& tile) {
    for (int s = 0; s < 8; ++s)
        for (int m = 0; m < 4; ++m)
            for (int i = 0; i < 4; ++i) {
                const uint8_t* four = codes + 32 * s + 8 * m + i;
                tile.codes[s][m][row][i] = (uint8_t)((four[0] & 15) | (four[4] & 15) << 4);
            }
}

INFERNO_INLINE void unpack_super_nibbles(const SuperNibbleTile& tile, int row, uint8_t* codes) {
    for (int s = 0; s < 8; ++s)
        for (int m = 0; m < 4; ++m)
            for (int i = 0; i < 4; ++i) {
                uint8_t* four = codes + 32 * s + 8 * m + i;
                four[0] = tile.codes[s][m][row][i] & 15;
                four[4] = tile.codes[s][m][row][i] >> 4;
            }
}

template <class Isa>
INFERNO_INLINE void load_super_nibbles(const SuperNibbleTile& tile, int s, int m, typename Isa::Bytes& first,
                                       typename Isa::Bytes& second) {
    const auto bytes = Isa::load_bytes(&tile.codes[s][m][0][0]);
    first = Isa::field(bytes, 0, 0x0F);
    second = Isa::field(bytes, 4, 0x0F);
}

// `kBits` (1 or 2) more bits of 256 columns' codes: byte i of a row's word holds those of columns
// c + i, c + 4 + i, c + 8 + i, … of the 32 / kBits columns from c on, lowest bits first.
template <int kBits>
struct BitTile {
    uint8_t bits[8 * kBits][kTileRows][4];
};

template <int kBits>
INFERNO_INLINE void pack_bits(const uint8_t* codes, int shift, int row, BitTile<kBits>& tile) {
    constexpr int kGroups = 8 / kBits, kMask = (1 << kBits) - 1;
    for (int word = 0; word < 8 * kBits; ++word)
        for (int i = 0; i < 4; ++i) {
            int byte = 0;
            for (int g = 0; g < kGroups; ++g)
                byte |= (codes[4 * (kGroups * word + g) + i] >> shift & kMask) << kBits * g;
            tile.bits[word][row][i] = (uint8_t)byte;
        }
}

template <int kBits>
INFERNO_INLINE void unpack_bits(const BitTile<kBits>& tile, int row, uint8_t* codes, int shift) {
    constexpr int kGroups = 8 / kBits, kMask = (1 << kBits) - 1;
    for (int column = 0; column < kSuperBlock; ++column) {
        const int group = column / 4;
        const int bits = tile.bits[group / kGroups][row][column % 4] >> kBits * (group % kGroups) & kMask;
        codes[column] = (uint8_t)(codes[column] | bits << shift);
    }
}

template <class Isa, int kBits>
INFERNO_INLINE void load_bits(const BitTile<kBits>& tile, int s, int m, typename Isa::Bytes& first,
                              typename Isa::Bytes& second) {
    constexpr int kGroups = 8 / kBits;
    const int group = 2 * m % kGroups;
    const auto bits = Isa::load_bytes(&tile.bits[kBits * s + 2 * m / kGroups][0][0]);
    first = Isa::field(bits, kBits * group, (1 << kBits) - 1);
    second = Isa::field(bits, kBits * (group + 1), (1 << kBits) - 1);
}

// The bits of columns 32s + 8m .. + 3 and + 4 .. + 7, at `shift` of the codes and below.
template <class Isa, int kBits>
INFERNO_INLINE void merge_bits(const BitTile<kBits>& tile, int s, int m, int shift, typename Isa::Bytes& first,
                               typename Isa::Bytes& second) {
    constexpr int kGroups = 8 / kBits;
    const int group = 2 * m % kGroups;
    const auto mask = (uint8_t)(((1 << kBits) - 1) << shift);
    const auto bits = Isa::load_bytes(&tile.bits[kBits * s + 2 * m / kGroups][0][0]);
    first = Isa::merge(first, bits, kBits * group - shift, mask);
    second = Isa::merge(second, bits, kBits * (group + 1) - shift, mask);
}

// Eight scales and eight minima of six bits in twelve bytes, as ggml stores them: a lane holds a row's words.
struct ScaleMinimumTile {
    uint8_t words[3][kTileRows][4];
};

// Byte i of `scales` and `minima`: of sub-block i.
INFERNO_INLINE void unpack_scales_and_minima(const uint8_t* words, uint8_t* scales, uint8_t* minima) {
    for (int i = 0; i < 4; ++i) {
        scales[i] = words[i] & 63;
        minima[i] = words[4 + i] & 63;
        scales[4 + i] = (uint8_t)((words[8 + i] & 15) | (words[i] >> 6) << 4);
        minima[4 + i] = (uint8_t)(words[8 + i] >> 4 | (words[4 + i] >> 6) << 4);
    }
}

INFERNO_INLINE void pack_scales_and_minima(const int* scales, const int* minima, uint8_t* words) {
    for (int i = 0; i < 4; ++i) {
        words[i] = (uint8_t)(scales[i] | scales[4 + i] >> 4 << 6);
        words[4 + i] = (uint8_t)(minima[i] | minima[4 + i] >> 4 << 6);
        words[8 + i] = (uint8_t)((scales[4 + i] & 15) | (minima[4 + i] & 15) << 4);
    }
}

// w = d * scale * code - dmin * minimum, with such scales.
template <class Block>
INFERNO_INLINE void decode_with_minima(const Block& in, const uint8_t* codes, float* w) {
    uint8_t scales[8], minima[8];
    unpack_scales_and_minima(in.scales, scales, minima);
    const float d = f16_to_f32(in.d), dmin = f16_to_f32(in.dmin);
    for (int j = 0; j < kSuperBlock; ++j)
        w[j] = d * (float)scales[j / 32] * (float)codes[j] - dmin * (float)minima[j / 32];
}

template <class Isa>
INFERNO_INLINE void load_scales(const ScaleMinimumTile& tile, typename Isa::Bytes (&scales)[2]) {
    const auto word = Isa::load_bytes(&tile.words[0][0][0]), last = Isa::load_bytes(&tile.words[2][0][0]);
    scales[0] = Isa::field(word, 0, 0x3F);
    scales[1] = Isa::merge(Isa::field(last, 0, 0x0F), word, 2, 0x30);
}

template <class Isa>
INFERNO_INLINE void load_minima(const ScaleMinimumTile& tile, typename Isa::Bytes (&minima)[2]) {
    const auto word = Isa::load_bytes(&tile.words[1][0][0]), last = Isa::load_bytes(&tile.words[2][0][0]);
    minima[0] = Isa::field(word, 0, 0x3F);
    minima[1] = Isa::merge(Isa::field(last, 4, 0x0F), word, 2, 0x30);
}

// A block as memory has it: its codes come apart on their way to each product.
template <class Isa, class F>
struct Packed {
    using Format = F;
    using TileBlock = typename F::TileBlock;
    static constexpr int kWords = kSuperBlock / F::kSubBlock / 4;
    static constexpr int kPrefetched = 8;  // parts, of what lies ahead

    INFERNO_INLINE void codes(const TileBlock& w, int s, int m, typename Isa::Bytes& first,
                              typename Isa::Bytes& second) {
        F::template codes<Isa>(w, s, m, first, second);
    }
    struct Scales {
        typename Isa::Bytes words[kWords];
    };
    INFERNO_INLINE void load_scales(const TileBlock& w, Scales& scales) { F::template scales<Isa>(w, scales.words); }
    INFERNO_INLINE auto scale(const Scales& scales, int i) { return Isa::scale_of(scales.words[i / 4], i % 4); }
    // What is times the sums of the activations: minima, or the scales themselves if there is an offset.
    using Factors = typename Isa::Pairs[2 * kWords];
    INFERNO_INLINE void load_factors(const TileBlock& w, Factors& factors) {
        typename Isa::Bytes words[kWords];
        if constexpr (F::kHasMinima) {
            F::template minima<Isa>(w, words);
        } else {
            F::template scales<Isa>(w, words);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kWords; ++i) {
            factors[2 * i] = Isa::even_bytes(words[i]);
            factors[2 * i + 1] = Isa::odd_bytes(words[i]);
        }
    }
    INFERNO_INLINE auto d(const TileBlock& w) { return Isa::load_f16(w.d); }
    INFERNO_INLINE auto dmin(const TileBlock& w) { return Isa::load_f16(w.dmin); }
};

// A block taken apart, for many tokens to multiply: a byte a code, and scales as the instruction set wants them.
template <class Isa, class F>
struct Expanded {
    using Format = F;
    static constexpr int kWords = kSuperBlock / F::kSubBlock / 4;
    static constexpr int kPrefetched = 0;

    struct alignas(64) TileBlock {
        uint8_t codes[kSuperBlock / 4][kTileRows][4];
        typename Isa::Scale scales[4 * kWords];
        typename Isa::Pairs factors[2 * kWords];
        typename Isa::F32 d, dmin;
    };

    INFERNO_INLINE void expand(const typename F::TileBlock& w, TileBlock& out) {
        using From = Packed<Isa, F>;
        typename From::Scales scales;
        From::load_scales(w, scales);
#pragma GCC unroll 16
        for (int i = 0; i < 4 * kWords; ++i) out.scales[i] = From::scale(scales, i);
        From::load_factors(w, out.factors);
        out.d = From::d(w);
        if constexpr (F::kHasMinima) out.dmin = From::dmin(w);
#pragma GCC unroll 1
        for (int s = 0; s < 8; ++s) {
#pragma GCC unroll 4
            for (int m = 0; m < 4; ++m) {
                typename Isa::Bytes first, second;
                From::codes(w, s, m, first, second);
                Isa::store_bytes(out.codes[8 * s + 2 * m][0], first);
                Isa::store_bytes(out.codes[8 * s + 2 * m + 1][0], second);
            }
        }
    }

    INFERNO_INLINE void codes(const TileBlock& w, int s, int m, typename Isa::Bytes& first,
                              typename Isa::Bytes& second) {
        first = Isa::load_bytes(w.codes[8 * s + 2 * m][0]);
        second = Isa::load_bytes(w.codes[8 * s + 2 * m + 1][0]);
    }
    using Scales = const typename Isa::Scale*;
    INFERNO_INLINE void load_scales(const TileBlock& w, Scales& scales) { scales = w.scales; }
    // By reference: a copy of two registers may be made of four halves (GCC 12).
    INFERNO_INLINE const auto& scale(Scales scales, int i) { return scales[i]; }
    using Factors = const typename Isa::Pairs*;
    INFERNO_INLINE void load_factors(const TileBlock& w, Factors& factors) { factors = w.factors; }
    INFERNO_INLINE const auto& d(const TileBlock& w) { return w.d; }
    INFERNO_INLINE const auto& dmin(const TileBlock& w) { return w.dmin; }
};

// acc[t] += d * scale_x * total, then += dmin * scale_x * sum of minima * -sum(q). `From` is Packed or Expanded.
//
// One row tile at a time, whatever Isa::kTiles: a broadcast is cheaper than the store of a total, and one tile's
// totals stay in registers where there are 32 (docs/lab-notebook.md).
template <class Isa, class From, int T>
INFERNO_INLINE void step_super_block(const typename From::TileBlock& w, const auto& x, float (*acc)[kTileRows]) {
    using Format = typename From::Format;
    constexpr int kWords = From::kWords;
    // Lines of 8 columns that an integer sum takes before it is scaled and joined to the total: a sub-block's,
    // or fewer if the sums are narrow.
    constexpr int kSums = Isa::code_run(Format::kLargestCode) / 2, kOwn = Format::kSubBlock / 8;
    constexpr int kRun = kSums < kOwn ? kSums : kOwn;
    static_assert(kRun >= 1 && 4 % kRun == 0);
    // The offset's share of a sub-block, where a sum can begin there.
    constexpr bool kStarts = !Format::kHasMinima && Isa::kSumsStartAnywhere;
    constexpr bool kTotalsWait = T > Isa::kPartTokens;

    typename From::Scales scales;
    From::load_scales(w, scales);
    typename Isa::I32 total[T];
    // Beside the sums of more tokens they would not fit the registers: they wait here.
    [[maybe_unused]] alignas(64) int32_t waiting[kTotalsWait ? T : 1][kTileRows];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        total[t] = Isa::zero_i32();
        if constexpr (kTotalsWait) Isa::store(waiting[t], total[t]);
    }
#pragma GCC unroll 1
    for (int s = 0; s < 8; ++s) {
        if constexpr (From::kPrefetched > 0) prefetch_part<Isa, From::kPrefetched>(&w, s);
        typename Isa::CodeSum sum[T];
#pragma GCC unroll 4
        for (int m = 0; m < 4; ++m) {
            const int sub_block = s * (32 / Format::kSubBlock) + m / kOwn;
            typename Isa::Bytes first, second;
            From::codes(w, s, m, first, second);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                if (m % kRun == 0) {
                    int32_t start = 0;
                    if constexpr (kStarts) start = x.bias[t][sub_block] >> (5 - Format::kOffsetBits);
                    sum[t] = Isa::code_sum(start);
                }
                Isa::dot_codes(sum[t], first, Isa::broadcast(&x.q[t][32 * s + 8 * m]));
                Isa::dot_codes(sum[t], second, Isa::broadcast(&x.q[t][32 * s + 8 * m + 4]));
            }
            if (m % kRun != kRun - 1) continue;
            const auto& scale = From::scale(scales, sub_block);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                if constexpr (kTotalsWait) total[t] = Isa::load(waiting[t]);
                total[t] = Isa::add(total[t], Isa::scaled(sum[t], scale));
                if constexpr (kTotalsWait) Isa::store(waiting[t], total[t]);
            }
        }
    }
    if constexpr (kTotalsWait) {
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) total[t] = Isa::load(waiting[t]);
    }
    const auto& d = From::d(w);
    if constexpr (kStarts) {
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto product = Isa::mul(d, Isa::splat(x.scale[t]));
            Isa::store(acc[t], Isa::fma(Isa::to_float(total[t]), product, Isa::load(acc[t])));
        }
    } else {
        typename From::Factors factors;
        From::load_factors(w, factors);
        typename Isa::I32 correction[T];
#pragma GCC unroll 8
        for (int i = 0; i < 2 * kWords; ++i) {
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const int16_t* sums = (Format::kSubBlock == 16 ? x.sums16[t] : x.sums32[t]) + 2 * i;
                correction[t] = Isa::dot_pairs(i == 0 ? Isa::zero_i32() : correction[t], factors[i], sums);
            }
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto scale_x = Isa::splat(x.scale[t]);
            auto a = Isa::load(acc[t]);
            if constexpr (Format::kHasMinima) {
                a = Isa::fma(Isa::to_float(total[t]), Isa::mul(d, scale_x), a);
                a = Isa::fma(Isa::to_float(correction[t]), Isa::mul(From::dmin(w), scale_x), a);
            } else {
                const auto sum = Isa::add(total[t], Isa::shift_left(correction[t], Format::kOffsetBits));
                a = Isa::fma(Isa::to_float(sum), Isa::mul(d, scale_x), a);
            }
            Isa::store(acc[t], a);
        }
    }
}

// The same for any number of tokens.
template <class Isa, class From>
INFERNO_INLINE void step_super_block_held(const typename From::TileBlock& w, Q8KTokens x, int tokens,
                                          float (*acc)[kTileRows]) {
    using Format = typename From::Format;
    constexpr int kSubBlocks = 32 / Format::kSubBlock;  // of 32 columns
    typename From::Scales scales;
    From::load_scales(w, scales);
    alignas(64) int32_t total[Isa::kTokens][kTileRows];
    std::memset(total, 0, (size_t)tokens * sizeof total[0]);
#pragma GCC unroll 1
    for (int s = 0; s < 8; ++s) {
        if constexpr (From::kPrefetched > 0) prefetch_part<Isa, From::kPrefetched>(&w, s);
        const auto codes = [&](int m, typename Isa::Bytes& first, typename Isa::Bytes& second)
                               INFERNO_INLINE_LAMBDA { From::codes(w, s, m, first, second); };
        const auto scale = [&](int i) INFERNO_INLINE_LAMBDA { return From::scale(scales, s * kSubBlocks + i); };
        const auto start = [&](int t, int i) INFERNO_INLINE_LAMBDA {
            if constexpr (Format::kHasMinima)
                return 0;
            else
                return x.bias[t][s * kSubBlocks + i] >> (5 - Format::kOffsetBits);
        };
        add_held<Isa, Format::kSubBlock, 1>(codes, scale, x, tokens, 32 * s, start, total);
    }
    [[maybe_unused]] typename From::Factors factors;
    if constexpr (Format::kHasMinima) From::load_factors(w, factors);
    unrolled<Isa::kSlices>([&](auto s) INFERNO_INLINE_LAMBDA {
        using Slice = typename Isa::Slice;
        [[maybe_unused]] typename Isa::template Factors<2 * From::kWords> own;
        if constexpr (Format::kHasMinima) own = Isa::template factors_of<2 * From::kWords>(factors, s);
        [[maybe_unused]] typename Slice::F32 dmin;
        if constexpr (Format::kHasMinima) dmin = Isa::slice(From::dmin(w), s);
        const auto add_minima = [&](int t, auto scaled, typename Slice::F32 a) INFERNO_INLINE_LAMBDA {
            if constexpr (Format::kHasMinima) {
                const auto* sums = Format::kSubBlock == 16 ? x.sums16[t] : x.sums32[t];
                return Slice::fma(Slice::to_float(Isa::dot_pairs(own, sums)), scaled(dmin), a);
            } else {
                return a;
            }
        };
        add_totals<Isa>(Isa::slice(From::d(w), s), x, tokens, s, total, acc, add_minima);
    });
}

}  // namespace inferno
