// Q5_K: 256 weights as 5-bit integers, a 6-bit scale and a 6-bit minimum each 32, 5.5 bits a weight.
// Source of the block: ggml's block_q5_K.
#pragma once
#include "quant/super_blocks.h"

namespace inferno {

struct Q5_K {
    static constexpr const char* kName = "q5_k";
    static constexpr int kColumns = kSuperBlock;
    static constexpr Activation kActivation = Activation::q8_k;
    static constexpr bool kEncodes = false;
    static constexpr int kSubBlock = 32, kLargestCode = 31;
    static constexpr bool kHasMinima = true;

    struct Block {
        f16 d, dmin;
        uint8_t scales[12];
        uint8_t fifth_bits[32];  // bit s of byte j: column 32s + j
        uint8_t nibbles[128];    // byte 32c + j: column 64c + j low, column 64c + 32 + j high
    };
    static_assert(sizeof(Block) == 176);

    struct TileBlock {
        f16 d[kTileRows], dmin[kTileRows];
        ScaleMinimumTile scales;
        SuperNibbleTile nibbles;
        BitTile<1> fifth_bits;
    };
    static_assert(sizeof(TileBlock) == 2816);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        uint8_t codes[kSuperBlock], scales[8], minima[8];
        unpack_codes(in, codes);
        unpack_scales_and_minima(in.scales, scales, minima);
        const float d = f16_to_f32(in.d), dmin = f16_to_f32(in.dmin);
        for (int j = 0; j < kSuperBlock; ++j)
            w[j] = d * (float)scales[j / 32] * (float)codes[j] - dmin * (float)minima[j / 32];
    }

    INFERNO_INLINE void encode(const float*, Block&) {}

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        uint8_t codes[kSuperBlock];
        unpack_codes(in, codes);
        tile.d[row] = in.d;
        tile.dmin[row] = in.dmin;
        for (int i = 0; i < 3; ++i) std::memcpy(tile.scales.words[i][row], in.scales + 4 * i, 4);
        pack_super_nibbles(codes, row, tile.nibbles);
        pack_bits(codes, 4, row, tile.fifth_bits);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        uint8_t codes[kSuperBlock];
        unpack_super_nibbles(tile.nibbles, row, codes);
        unpack_bits(tile.fifth_bits, row, codes, 4);
        out.d = tile.d[row];
        out.dmin = tile.dmin[row];
        for (int i = 0; i < 3; ++i) std::memcpy(out.scales + 4 * i, tile.scales.words[i][row], 4);
        for (int j = 0; j < 128; ++j) {
            const uint8_t* low = codes + j / 32 * 64 + j % 32;
            out.nibbles[j] = (uint8_t)((low[0] & 15) | low[32] << 4);
        }
        std::memset(out.fifth_bits, 0, sizeof out.fifth_bits);
        for (int j = 0; j < kSuperBlock; ++j) out.fifth_bits[j % 32] |= (uint8_t)(codes[j] >> 4 << j / 32);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int s, int m, typename Isa::Bytes& first,
                              typename Isa::Bytes& second) {
        load_super_nibbles<Isa>(w.nibbles, s, m, first, second);
        merge_bits<Isa>(w.fifth_bits, s, m, 4, first, second);
    }
    template <class Isa>
    INFERNO_INLINE void scales(const TileBlock& w, typename Isa::Bytes (&bytes)[2]) {
        load_scales<Isa>(w.scales, bytes);
    }
    template <class Isa>
    INFERNO_INLINE void minima(const TileBlock& w, typename Isa::Bytes (&bytes)[2]) {
        load_minima<Isa>(w.scales, bytes);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const Q8KBlock<T>& x, float (*acc)[T][kTileRows]) {
        for (int r = 0; r < R; ++r) step_super_block<Isa, Q5_K>(*w[r], x, acc[r]);
    }

private:
    INFERNO_INLINE void unpack_codes(const Block& in, uint8_t* codes) {
        for (int j = 0; j < 128; ++j) {
            uint8_t* low = codes + j / 32 * 64 + j % 32;
            low[0] = in.nibbles[j] & 15;
            low[32] = in.nibbles[j] >> 4;
        }
        for (int j = 0; j < kSuperBlock; ++j) codes[j] |= (uint8_t)((in.fifth_bits[j % 32] >> j / 32 & 1) << 4);
    }
};

}  // namespace inferno
