// Q3_K: 256 weights as 3-bit integers and a 6-bit scale each 16, 3.4375 bits a weight.
// Stored code = w/scale + 4, stored scale = scale + 32. Source of the block: ggml's block_q3_K.
#pragma once
#include "quant/super_encode.h"

namespace inferno {

struct Q3_K {
    static constexpr const char* kName = "q3_k";
    static constexpr int kColumns = kSuperBlock;
    static constexpr Activation kActivation = Activation::q8_k;
    static constexpr bool kEncodes = true;
    static constexpr int kSubBlock = 16, kLargestCode = 7, kOffsetBits = 2;
    static constexpr bool kHasMinima = false;
    static constexpr int kLeastScale = -32, kLargestScale = 31;

    struct Block {
        uint8_t third_bits[32];  // bit s of byte j: column 32s + j
        uint8_t low_bits[64];    // bits 2c and 2c + 1 of byte 32h + j: column 128h + 32c + j
        uint8_t scales[12];
        f16 d;
    };
    static_assert(sizeof(Block) == 110);

    struct TileBlock {
        f16 d[kTileRows];
        uint8_t scales[3][kTileRows][4];
        BitTile<2> low_bits;
        BitTile<1> third_bits;
    };
    static_assert(sizeof(TileBlock) == 1760);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        uint8_t codes[kSuperBlock] = {};
        split_codes(in, codes);
        const float d = f16_to_f32(in.d);
        for (int j = 0; j < kSuperBlock; ++j) w[j] = d * (float)scale(in.scales, j / 16) * (float)(codes[j] - 4);
    }

    INFERNO_INLINE void encode(const float* w, Block& out) { join(round_super_block<Q3_K>(w), out); }

    // By weighted least squares; `importance` of the 256 columns, or null.
    INFERNO_INLINE void fit(const float* w, const float* importance, Block& out) {
        join(fit_super_block<Q3_K>(w, importance), out);
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        uint8_t codes[kSuperBlock] = {};
        split_codes(in, codes);
        tile.d[row] = in.d;
        for (int i = 0; i < 3; ++i) std::memcpy(tile.scales[i][row], in.scales + 4 * i, 4);
        pack_bits(codes, 0, row, tile.low_bits);
        pack_bits(codes, 2, row, tile.third_bits);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        uint8_t codes[kSuperBlock] = {};
        unpack_bits(tile.low_bits, row, codes, 0);
        unpack_bits(tile.third_bits, row, codes, 2);
        out.d = tile.d[row];
        for (int i = 0; i < 3; ++i) std::memcpy(out.scales + 4 * i, tile.scales[i][row], 4);
        join_pairs(codes, 0, out.low_bits);
        join_bits(codes, 2, out.third_bits);
    }

    template <class Isa>
    INFERNO_INLINE void codes(const TileBlock& w, int s, int m, typename Isa::Bytes& first,
                              typename Isa::Bytes& second) {
        load_bits<Isa>(w.low_bits, s, m, first, second);
        merge_bits<Isa>(w.third_bits, s, m, 2, first, second);
    }
    template <class Isa>
    INFERNO_INLINE void scales(const TileBlock& w, typename Isa::Bytes (&bytes)[4]) {
        const auto low = Isa::load_bytes(w.scales[0][0]), high = Isa::load_bytes(w.scales[1][0]),
                   last = Isa::load_bytes(w.scales[2][0]);
        bytes[0] = Isa::subtract(Isa::merge(Isa::field(low, 0, 0x0F), last, -4, 0x30), 32);
        bytes[1] = Isa::subtract(Isa::merge(Isa::field(high, 0, 0x0F), last, -2, 0x30), 32);
        bytes[2] = Isa::subtract(Isa::merge(Isa::field(low, 4, 0x0F), last, 0, 0x30), 32);
        bytes[3] = Isa::subtract(Isa::merge(Isa::field(high, 4, 0x0F), last, 2, 0x30), 32);
    }

    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        for (int r = 0; r < R; ++r) step_super_block<Isa, Packed<Isa, Q3_K>, T>(*w[r], x, acc[r]);
    }

private:
    INFERNO_INLINE void join(const SuperParts& parts, Block& out) {
        out.d = parts.d;
        std::memset(out.scales, 0, sizeof(out.scales));
        for (int i = 0; i < 16; ++i) {
            const int stored = parts.scales[i] + 32;
            out.scales[i % 8] |= (uint8_t)((stored & 15) << (i < 8 ? 0 : 4));
            out.scales[8 + i % 4] |= (uint8_t)(stored >> 4 << i / 4 * 2);
        }
        join_pairs(parts.codes, 0, out.low_bits);
        join_bits(parts.codes, 2, out.third_bits);
    }
    // Low nibbles of bytes 0 .. 7 are the low bits of scales 0 .. 7, high nibbles of 8 .. 15; bytes 8 .. 11 hold the
    // two high bits of scales i, 4 + i, 8 + i and 12 + i.
    INFERNO_INLINE int scale(const uint8_t* bytes, int i) {
        return ((bytes[i % 8] >> (i < 8 ? 0 : 4) & 15) | (bytes[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
    }
    INFERNO_INLINE void split_codes(const Block& in, uint8_t* codes) {
        split_pairs(in.low_bits, 0, codes);
        split_bits(in.third_bits, 2, codes);
    }
};

}  // namespace inferno
