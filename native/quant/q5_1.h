// Q5_1: 32 weights as 5-bit integers with an f16 scale and an f16 minimum, 6 bits a weight:
// w = scale * code + minimum. Source of the block: ggml's block_q5_1.
#pragma once
#include "quant/affine.h"
#include "quant/nibbles.h"

namespace inferno {

struct Q5_1 : AffineFormat<Q5_1> {
    static constexpr const char* kName = "q5_1";
    static constexpr int kLargestCode = 31;

    struct Block {
        f16 scale, minimum;
        uint8_t fifth_bits[4];  // bit j: of column j
        uint8_t nibbles[16];    // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 24);

    struct TileBlock {
        f16 scale[kTileRows], minimum[kTileRows];
        FifthBitTile fifth_bits;
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 384);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale), m = f16_to_f32(in.minimum);
        for (int j = 0; j < kBlock; ++j) w[j] = (float)five_bits(in.nibbles, in.fifth_bits, j) * d + m;
    }

    INFERNO_INLINE void store_codes(const uint8_t* codes, Block& out) {
        store_five_bits(codes, out.nibbles, out.fifth_bits);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        tile.minimum[row] = in.minimum;
        pack_fifth_bits(in.fifth_bits, row, tile.fifth_bits);
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        out.minimum = tile.minimum[row];
        unpack_fifth_bits(tile.fifth_bits, row, out.fifth_bits);
        unpack_nibbles(tile.nibbles, row, out.nibbles);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
        load_five_bits<Isa>(w.nibbles, w.fifth_bits, m, low, high);
    }
};

}  // namespace inferno
