// Q2_K: 256 weights as 2-bit integers, a 4-bit scale and a 4-bit minimum each 16, 2.625 bits a weight.
// Source of the block: ggml's block_q2_K.
#pragma once
#include "quant/super_encode.h"

namespace inferno {

struct Q2_K {
    static constexpr const char* kName = "q2_k";
    static constexpr int kColumns = kSuperBlock;
    static constexpr Activation kActivation = Activation::q8_k;
    static constexpr bool kEncodes = true;
    static constexpr int kSubBlock = 16, kLargestCode = 3;
    static constexpr bool kHasMinima = true;
    static constexpr int kLeastScale = 0, kLargestScale = 15;

    struct Block {
        uint8_t scales[16];    // low nibble: scale, high nibble: minimum
        uint8_t low_bits[64];  // bits 2c and 2c + 1 of byte 32h + j: column 128h + 32c + j
        f16 d, dmin;
    };
    static_assert(sizeof(Block) == 84);

    struct TileBlock {
        f16 d[kTileRows], dmin[kTileRows];
        uint8_t scales[4][kTileRows][4];
        BitTile<2> low_bits;
    };
    static_assert(sizeof(TileBlock) == 1344);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        uint8_t codes[kSuperBlock] = {};
        split_pairs(in.low_bits, 0, codes);
        const float d = f16_to_f32(in.d), dmin = f16_to_f32(in.dmin);
        for (int j = 0; j < kSuperBlock; ++j) {
            const int scale = in.scales[j / 16] & 15, minimum = in.scales[j / 16] >> 4;
            w[j] = d * (float)scale * (float)codes[j] - dmin * (float)minimum;
        }
    }

    INFERNO_INLINE void encode(const float* w, Block& out) { join(round_super_block<Q2_K>(w), out); }

    // By weighted least squares; `importance` of the 256 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        join(fit_super_block<Q2_K>(w, importance), out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        uint8_t codes[kSuperBlock] = {};
        split_pairs(in.low_bits, 0, codes);
        tile.d[row] = in.d;
        tile.dmin[row] = in.dmin;
        for (int i = 0; i < 4; ++i) std::memcpy(tile.scales[i][row], in.scales + 4 * i, 4);
        pack_bits(codes, 0, row, tile.low_bits);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        uint8_t codes[kSuperBlock] = {};
        unpack_bits(tile.low_bits, row, codes, 0);
        out.d = tile.d[row];
        out.dmin = tile.dmin[row];
        for (int i = 0; i < 4; ++i) std::memcpy(out.scales + 4 * i, tile.scales[i][row], 4);
        join_pairs(codes, 0, out.low_bits);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int s, int m, typename Isa::Bytes& first,
                              typename Isa::Bytes& second) {
        load_bits<Isa>(w.low_bits, s, m, first, second);
    }
    template <class Isa>
    INFERNO_INLINE void scales(const TileBlock& w, typename Isa::Bytes (&bytes)[4]) {
        for (int i = 0; i < 4; ++i) bytes[i] = Isa::field(Isa::load_bytes(w.scales[i][0]), 0, 0x0F);
    }
    template <class Isa>
    INFERNO_INLINE void minima(const TileBlock& w, typename Isa::Bytes (&bytes)[4]) {
        for (int i = 0; i < 4; ++i) bytes[i] = Isa::field(Isa::load_bytes(w.scales[i][0]), 4, 0x0F);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        for (int r = 0; r < R; ++r) step_super_block<Isa, Packed<Isa, Q2_K>, T>(*w[r], x, acc[r]);
    }

private:
    INFERNO_INLINE void join(const SuperParts& parts, Block& out) {
        out.d = parts.d;
        out.dmin = parts.dmin;
        for (int i = 0; i < 16; ++i) out.scales[i] = (uint8_t)(parts.scales[i] | parts.minima[i] << 4);
        join_pairs(parts.codes, 0, out.low_bits);
    }
};

}  // namespace inferno
