// MXFP4: 32 weights as 4-bit floats (E2M1) with a power of two (E8M0), 4.25 bits a weight. The values are taken
// twice as large, which makes them integers, and the scale half. Source: the OCP Microscaling Formats (MX)
// specification 1.0; ggml's block_mxfp4 for the order.
#pragma once
#include "quant/nibbles.h"

namespace inferno {

// Twice the value of each code, plus 12: codes of 0 .. 24 are unsigned, and few enough for narrow sums.
constexpr int8_t kE2M1Values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct MXFP4 {
    static constexpr const char* kName = "mxfp4";
    static constexpr int kColumns = kBlock;
    static constexpr Activation kActivation = Activation::q8;
    static constexpr bool kEncodes = false;
    static constexpr bool kHasMinimum = false;
    static constexpr int kLargestCode = 24, kOffset = 12;

    struct Block {
        uint8_t exponent;     // the scale is 2^(exponent - 127)
        uint8_t nibbles[16];  // byte j: column j low, column j + 16 high
    };
    static_assert(sizeof(Block) == 17);

    struct TileBlock {
        uint8_t exponent[kTileRows];
        NibbleTile nibbles;
    };
    static_assert(sizeof(TileBlock) == 272);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = half_power_of_two(in.exponent);
        for (int j = 0; j < 16; ++j) {
            w[j] = (float)(kE2M1Values[in.nibbles[j] & 15] - 12) * d;
            w[j + 16] = (float)(kE2M1Values[in.nibbles[j] >> 4] - 12) * d;
        }
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.exponent[row] = in.exponent;
        pack_nibbles(in.nibbles, row, tile.nibbles);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.exponent = tile.exponent[row];
        unpack_nibbles(tile.nibbles, row, out.nibbles);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int m, typename Isa::Bytes& low, typename Isa::Bytes& high) {
        load_nibbles<Isa>(w.nibbles, m, low, high);
        low = Isa::lookup(low, kE2M1Values);
        high = Isa::lookup(high, kE2M1Values);
    }

    template <class Isa>
    INFERNO_INLINE auto scale(const TileBlock& w) {
        return Isa::load_half_powers_of_two(w.exponent);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        step_unsigned<Isa, MXFP4>(w, x, acc);
    }
};

}  // namespace inferno
