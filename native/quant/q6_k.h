// Q6_K: 256 weights as 6-bit integers and an int8 scale each 16, 6.5625 bits a weight.
// Stored code = w/scale + 32. Source of the block: ggml's block_q6_K.
#pragma once
#include "quant/super_encode.h"

namespace inferno {

struct Q6_K {
    static constexpr const char* kName = "q6_k";
    static constexpr int kColumns = kSuperBlock;
    static constexpr Activation kActivation = Activation::q8_k;
    static constexpr bool kEncodes = true;
    static constexpr int kSubBlock = 16, kLargestCode = 63, kOffsetBits = 5;
    static constexpr bool kHasMinima = false;
    static constexpr int kLeastScale = -128, kLargestScale = 127;

    struct Block {
        uint8_t nibbles[128];   // byte 64h + j: column 128h + j low, column 128h + 64 + j high
        uint8_t high_bits[64];  // bits 2c and 2c + 1 of byte 32h + j: column 128h + 32c + j
        int8_t scales[16];
        f16 d;
    };
    static_assert(sizeof(Block) == 210);

    struct TileBlock {
        f16 d[kTileRows];
        int8_t scales[4][kTileRows][4];
        SuperNibbleTile nibbles;
        BitTile<2> high_bits;
    };
    static_assert(sizeof(TileBlock) == 3360);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        uint8_t codes[kSuperBlock] = {};
        split_codes(in, codes);
        const float d = f16_to_f32(in.d);
        for (int j = 0; j < kSuperBlock; ++j) w[j] = d * (float)in.scales[j / 16] * (float)(codes[j] - 32);
    }

    INFERNO_INLINE void encode(const float* w, Block& out) { join(round_super_block<Q6_K>(w), out); }

    // By weighted least squares; `importance` of the 256 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        join(fit_super_block<Q6_K>(w, importance), out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        uint8_t codes[kSuperBlock] = {};
        split_codes(in, codes);
        tile.d[row] = in.d;
        for (int i = 0; i < 4; ++i) std::memcpy(tile.scales[i][row], in.scales + 4 * i, 4);
        pack_super_nibbles(codes, row, tile.nibbles);
        pack_bits(codes, 4, row, tile.high_bits);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        uint8_t codes[kSuperBlock];
        unpack_super_nibbles(tile.nibbles, row, codes);
        unpack_bits(tile.high_bits, row, codes, 4);
        out.d = tile.d[row];
        for (int i = 0; i < 4; ++i) std::memcpy(out.scales + 4 * i, tile.scales[i][row], 4);
        join_nibbles<64>(codes, out.nibbles);
        join_pairs(codes, 4, out.high_bits);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int s, int m, typename Isa::Bytes& first,
                              typename Isa::Bytes& second) {
        load_super_nibbles<Isa>(w.nibbles, s, m, first, second);
        merge_bits<Isa>(w.high_bits, s, m, 4, first, second);
    }
    template <class Isa>
    INFERNO_INLINE void scales(const TileBlock& w, typename Isa::Bytes (&bytes)[4]) {
        for (int i = 0; i < 4; ++i) bytes[i] = Isa::load_bytes((const uint8_t*)w.scales[i]);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        for (int r = 0; r < R; ++r) step_super_block<Isa, Packed<Isa, Q6_K>, T>(*w[r], x, acc[r]);
    }

private:
    INFERNO_INLINE void join(const SuperParts& parts, Block& out) {
        out.d = parts.d;
        for (int i = 0; i < 16; ++i) out.scales[i] = (int8_t)parts.scales[i];
        join_nibbles<64>(parts.codes, out.nibbles);
        join_pairs(parts.codes, 4, out.high_bits);
    }
    INFERNO_INLINE void split_codes(const Block& in, uint8_t* codes) {
        split_nibbles<64>(in.nibbles, codes);
        split_pairs(in.high_bits, 4, codes);
    }
};

}  // namespace inferno
