// 4-bit codes of one block of 32 columns, arranged for 16 rows: shared by the formats that store them.
//
//   source row:  byte j         = column j (low) and column j + 16 (high)
//   tile:        codes[m][r][i] = the same byte, j = 4m + i, of row r
//
// so 64 bytes at [m] are 16 rows x 4 consecutive columns: each row owns a 32-bit lane, and a lane's
// dot product with 4 activations needs no shuffle and no horizontal sum.
#pragma once
#include "quant/activations.h"

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

// sum[r][t] = per row of row tile r, start[t] + sum over the block of code * q, where an ISA can start its sums
// for free (the others add `start` at the end: Isa::nibble_total is given it too). Groups of four columns
// outermost, so that each broadcast of four activations serves every row.
template <class Isa, int T, int R, class TileBlock>
INFERNO_INLINE void dot_nibble_block(const TileBlock* const (&w)[R], const Q8Block<T>& x, const int32_t (&start)[T],
                                     typename Isa::NibbleSum (&sum)[R][T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sum[r][t] = Isa::nibble_sum(start[t]);
#pragma GCC unroll 4
    for (int m = 0; m < 4; ++m) {
        typename Isa::Bytes low[R], high[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const auto bytes = Isa::load_bytes(&w[r]->nibbles.codes[m][0][0]);
            low[r] = Isa::low_nibbles(bytes);
            high[r] = Isa::high_nibbles(bytes);
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const auto first = Isa::broadcast(&x.q[t][4 * m]);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) Isa::dot_nibbles(sum[r][t], low[r], first);
            const auto second = Isa::broadcast(&x.q[t][16 + 4 * m]);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) Isa::dot_nibbles(sum[r][t], high[r], second);
        }
    }
}

}  // namespace inferno
