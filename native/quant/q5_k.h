// Q5_K: 256 weights as 5-bit integers, a 6-bit scale and a 6-bit minimum each 32, 5.5 bits a weight.
// Source of the block: ggml's block_q5_K.
#pragma once
#include "quant/super_encode.h"

namespace inferno {

struct Q5_K {
    static constexpr const char* kName = "q5_k";
    static constexpr int kColumns = kSuperBlock;
    static constexpr Activation kActivation = Activation::q8_k;
    static constexpr bool kEncodes = true;
    static constexpr int kSubBlock = 32, kLargestCode = 31;
    static constexpr bool kHasMinima = true;
    static constexpr int kLeastScale = 0, kLargestScale = 63;

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
        uint8_t codes[kSuperBlock] = {};
        split_codes(in, codes);
        decode_with_minima(in, codes, w);
    }

    INFERNO_INLINE void encode(const float* w, Block& out) { join(round_super_block<Q5_K>(w), out); }

    // By weighted least squares; `importance` of the 256 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        join(fit_super_block<Q5_K>(w, importance), out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        uint8_t codes[kSuperBlock] = {};
        split_codes(in, codes);
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
        join_nibbles<32>(codes, out.nibbles);
        join_bits(codes, 4, out.fifth_bits);
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
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        for (int r = 0; r < R; ++r) step_super_block<Isa, Packed<Isa, Q5_K>, T>(*w[r], x, acc[r]);
    }

private:
    INFERNO_INLINE void join(const SuperParts& parts, Block& out) {
        out.d = parts.d;
        out.dmin = parts.dmin;
        pack_scales_and_minima(parts.scales, parts.minima, out.scales);
        join_nibbles<32>(parts.codes, out.nibbles);
        join_bits(parts.codes, 4, out.fifth_bits);
    }
    INFERNO_INLINE void split_codes(const Block& in, uint8_t* codes) {
        split_nibbles<32>(in.nibbles, codes);
        split_bits(in.fifth_bits, 4, codes);
    }
};

}  // namespace inferno
