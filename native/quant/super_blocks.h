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

// acc[r][t] += d * scale_x * total, then -= dmin * scale_x * sum of minima * sums of q.
template <class Isa, class Format, int T, int R>
INFERNO_INLINE void step_super_block(const typename Format::TileBlock* const (&w)[R], const Q8KBlock<T>& x,
                                     float (*acc)[T][kTileRows]) {
    constexpr int kSubBlocks = kSuperBlock / Format::kSubBlock;
    // Lines of 8 columns that an integer sum takes before it is scaled and joined to the total: a sub-block's,
    // or fewer if the sums are narrow.
    constexpr int kSums = Isa::code_run(Format::kLargestCode) / 2, kOwn = Format::kSubBlock / 8;
    constexpr int kRun = kSums < kOwn ? kSums : kOwn;
    static_assert(kRun >= 1 && 4 % kRun == 0);

    typename Isa::Scale scales[R][kSubBlocks];
    // In memory and not in registers, which the sums need.
    alignas(64) int32_t total[R][T][kTileRows] = {};
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        typename Isa::Bytes bytes[kSubBlocks / 4];
        Format::template scales<Isa>(*w[r], bytes);
#pragma GCC unroll 4
        for (int i = 0; i < kSubBlocks / 4; ++i) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) scales[r][4 * i + j] = Isa::scale_of(bytes[i], j);
        }
    }
#pragma GCC unroll 1
    for (int s = 0; s < 8; ++s) {
        typename Isa::CodeSum sum[R][T];
#pragma GCC unroll 4
        for (int m = 0; m < 4; ++m) {
            typename Isa::Bytes first[R], second[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) Format::template codes<Isa>(*w[r], s, m, first[r], second[r]);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const auto x0 = Isa::broadcast(&x.q[t][32 * s + 8 * m]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    if (m % kRun == 0) sum[r][t] = Isa::code_sum(0);
                    Isa::dot_codes(sum[r][t], first[r], x0);
                }
                const auto x1 = Isa::broadcast(&x.q[t][32 * s + 8 * m + 4]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) Isa::dot_codes(sum[r][t], second[r], x1);
            }
            if (m % kRun != kRun - 1) continue;
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const auto scale = scales[r][s * (32 / Format::kSubBlock) + m / kOwn];
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const auto run = Isa::scaled(sum[r][t], scale);
                    Isa::store(total[r][t], Isa::add(Isa::load(total[r][t]), run));
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        // What is times the sums of the activations: minima, or scales if there is an offset.
        typename Isa::Bytes bytes[kSubBlocks / 4];
        if constexpr (Format::kHasMinima)
            Format::template minima<Isa>(*w[r], bytes);
        else
            Format::template scales<Isa>(*w[r], bytes);
        typename Isa::I32 correction[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) correction[t] = Isa::zero_i32();
#pragma GCC unroll 4
        for (int i = 0; i < kSubBlocks / 4; ++i) {
            const auto even = Isa::even_bytes(bytes[i]), odd = Isa::odd_bytes(bytes[i]);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const int16_t* sums = (Format::kSubBlock == 16 ? x.sums16[t] : x.sums32[t]) + 4 * i;
                correction[t] = Isa::dot_pairs(Isa::dot_pairs(correction[t], even, sums), odd, sums + 2);
            }
        }
        const auto d = Isa::load_f16(w[r]->d);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto scale_x = Isa::splat(x.scale[t]);
            auto sum = Isa::load(total[r][t]);
            if constexpr (!Format::kHasMinima) sum = Isa::add(sum, Isa::shift_left(correction[t], Format::kOffsetBits));
            auto a = Isa::fma(Isa::to_float(sum), Isa::mul(d, scale_x), Isa::load(acc[r][t]));
            if constexpr (Format::kHasMinima) {
                const auto dmin = Isa::load_f16(w[r]->dmin);
                a = Isa::fma(Isa::to_float(correction[t]), Isa::mul(dmin, scale_x), a);
            }
            Isa::store(acc[r][t], a);
        }
    }
}

}  // namespace inferno
