// IQ4_NL: 32 weights as indices of 4 bits into a table of 16 values, with one f16 scale, 4.5 bits a weight.
// Source of the block and of the table: ggml's block_iq4_nl and kvalues_iq4nl.
#pragma once
#include "quant/nibbles.h"

namespace inferno {

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
    static constexpr const char* kName = "iq4_nl";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = false;
    static constexpr bool kHasMinimum = false;

    struct Block {
        f16 scale;
        uint8_t nibbles[16];  // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 18);

    struct TileBlock {
        f16 scale[kTileRows];
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 288);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.scale);
        for (int j = 0; j < 16; ++j) {
            w[j] = (float)kIq4Values[in.nibbles[j] & 15] * d;
            w[j + 16] = (float)kIq4Values[in.nibbles[j] >> 4] * d;
        }
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.scale[row] = in.scale;
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.scale = tile.scale[row];
        unpack_nibbles(tile.nibbles, row, out.nibbles);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
        load_nibbles<Isa>(w.nibbles, m, low, high);
        low = Isa::lookup(low, kIq4Values);
        high = Isa::lookup(high, kIq4Values);
    }

    template <class Isa>
    INFERNO_INLINE auto scale(const TileBlock& w) {
        return Isa::load_f16(w.scale);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        step_signed<Isa, IQ4_NL>(w, x, acc);
    }
};

}  // namespace inferno
