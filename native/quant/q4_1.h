// Q4_1: 32 weights as 4-bit integers with an f16 scale and an f16 minimum, 5 bits a weight:
// w = scale * code + minimum. Source of the block: ggml's block_q4_1.
#pragma once
#include "quant/affine.h"
#include "quant/nibbles.h"

namespace inferno {

struct Q4_1 : AffineFormat<Q4_1> {
    static constexpr const char* kName = "q4_1";
    static constexpr int kLargestCode = 15;

    struct Block {
        f16 scale, minimum;
        uint8_t nibbles[16];  // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 20);

    struct TileBlock {
        f16 scale[kTileRows], minimum[kTileRows];
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 320);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale), m = f16_to_f32(in.minimum);
        for (int j = 0; j < 16; ++j) {
            w[j] = (float)(in.nibbles[j] & 15) * d + m;
            w[j + 16] = (float)(in.nibbles[j] >> 4) * d + m;
        }
    }

    INFERNO_INLINE void store_codes(const uint8_t* codes, Block& out) {
        for (int j = 0; j < 16; ++j) out.nibbles[j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        tile.minimum[row] = in.minimum;
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        out.minimum = tile.minimum[row];
        unpack_nibbles(tile.nibbles, row, out.nibbles);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
        load_nibbles<Isa>(w.nibbles, m, low, high);
    }
};

}  // namespace inferno
