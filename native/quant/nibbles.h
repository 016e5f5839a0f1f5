// 4-bit codes of one block of 32 columns, arranged for 16 rows: shared by the formats that store them.
//
//   source row:  byte j         = column j (low) and column j + 16 (high)
//   tile:        codes[m][r][i] = the same byte, j = 4m + i, of row r
//
// so 64 bytes at [m] are 16 rows x 4 consecutive columns: each row owns a 32-bit lane, and a lane's
// dot product with 4 activations needs no shuffle and no horizontal sum.
#pragma once
#include "quant/codes.h"

namespace inferno {

struct NibbleTile {
    uint8_t codes[4][kTileRows][4];
};

INFERNO_INLINE void pack_nibbles(const uint8_t* source, int row, NibbleTile& tile) {
    for (int m = 0; m < 4; ++m) std::memcpy(tile.codes[m][row], source + 4 * m, 4);
}

INFERNO_INLINE void unpack_nibbles(const NibbleTile& tile, int row, uint8_t* source) {
    for (int m = 0; m < 4; ++m) std::memcpy(source + 4 * m, tile.codes[m][row], 4);
}

// The codes of line m, as quant/codes.h wants them.
template <class Isa>
INFERNO_INLINE void load_nibbles(const NibbleTile& tile, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
    const auto bytes = Isa::load_bytes(&tile.codes[m][0][0]);
    low = Isa::field(bytes, 0, 0x0F);
    high = Isa::field(bytes, 4, 0x0F);
}

// The fifth bits of 32 columns: bit j of a row's word for column j, as ggml stores them; in the tile bit g
// of byte i for column 4g + i. One shift and one mask then bring the bits of four columns to their codes.
struct FifthBitTile {
    uint8_t bits[kTileRows][4];
};

INFERNO_INLINE void pack_fifth_bits(const uint8_t* source, int row, FifthBitTile& tile) {
    for (int i = 0; i < 4; ++i) {
        uint8_t byte = 0;
        for (int g = 0; g < 8; ++g) {
            const int column = 4 * g + i;
            byte |= (source[column / 8] >> column % 8 & 1) << g;
        }
        tile.bits[row][i] = byte;
    }
}

INFERNO_INLINE void unpack_fifth_bits(const FifthBitTile& tile, int row, uint8_t* source) {
    std::memset(source, 0, 4);
    for (int column = 0; column < 32; ++column)
        source[column / 8] |= (tile.bits[row][column % 4] >> column / 4 & 1) << column % 8;
}

// The code of column j of a stored row, and a stored row of 32 codes.
INFERNO_INLINE int five_bits(const uint8_t* nibbles, const uint8_t* fifth_bits, int j) {
    return (nibbles[j % 16] >> (j < 16 ? 0 : 4) & 15) | (fifth_bits[j / 8] >> j % 8 & 1) << 4;
}
INFERNO_INLINE void store_five_bits(const uint8_t* codes, uint8_t* nibbles, uint8_t* fifth_bits) {
    std::memset(fifth_bits, 0, 4);
    for (int j = 0; j < 16; ++j) nibbles[j] = (uint8_t)((codes[j] & 15) | codes[j + 16] << 4);
    for (int j = 0; j < 32; ++j) fifth_bits[j / 8] |= (uint8_t)(codes[j] >> 4 << j % 8);
}

// Codes of five bits: nibbles with their fifth bits.
template <class Isa>
INFERNO_INLINE void load_five_bits(const NibbleTile& tile, const FifthBitTile& fifth, int m, typename Isa::Bytes& low,
                                   typename Isa::Bytes& high) {
    load_nibbles<Isa>(tile, m, low, high);
    const auto bits = Isa::load_bytes(&fifth.bits[0][0]);
    low = Isa::merge(low, bits, m - 4, 0x10);  // from bit m to bit 4
    high = Isa::merge(high, bits, m, 0x10);    // from bit 4 + m
}

}  // namespace inferno
