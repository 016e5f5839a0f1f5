// IQ4_XS: 256 weights as indices of 4 bits into the table of IQ4_NL, and a 6-bit scale each 32, 4.25 bits a
// weight. Source of the block: ggml's block_iq4_xs.
#pragma once
#include "quant/iq4_nl.h"

namespace inferno {

struct IQ4_XS {
    static constexpr const char* kName = "iq4_xs";
    static constexpr int kColumns = kSuperBlock;
    static constexpr Activation kActivation = Activation::q8_k;
    static constexpr bool kEncodes = false;

    struct Block {
        f16 d;
        uint8_t scale_high[2];  // bits 2s and 2s + 1 of the word: the two high bits of scale s + 32
        uint8_t scale_low[4];   // byte i: scale 2i low, scale 2i + 1 high
        uint8_t nibbles[8][16];
    };
    static_assert(sizeof(Block) == 136);

    struct TileBlock {
        f16 d[kTileRows];
        int8_t scales[2][kTileRows][4];  // unpacked: 1.5 % more memory for a sixth of the instructions
        NibbleTile nibbles[8];
    };
    static_assert(sizeof(TileBlock) == 2208);

    INFERNO_INLINE void decode(const Block& in, float* w) {
        const float d = f16_to_f32(in.d);
        for (int j = 0; j < kSuperBlock; ++j) {
            const int code = in.nibbles[j / 32][j % 16] >> (j % 32 < 16 ? 0 : 4) & 15;
            w[j] = d * (float)scale(in, j / 32) * (float)kIq4Values[code];
        }
    }

    INFERNO_INLINE void pack_row(const Block& in, int row, TileBlock& tile) {
        tile.d[row] = in.d;
        for (int s = 0; s < 8; ++s) tile.scales[s / 4][row][s % 4] = (int8_t)scale(in, s);
        for (int s = 0; s < 8; ++s) pack_nibbles(in.nibbles[s], row, tile.nibbles[s]);
    }
    INFERNO_INLINE void unpack_row(const TileBlock& tile, int row, Block& out) {
        out.d = tile.d[row];
        std::memset(out.scale_high, 0, sizeof out.scale_high);
        std::memset(out.scale_low, 0, sizeof out.scale_low);
        for (int s = 0; s < 8; ++s) {
            const int stored = tile.scales[s / 4][row][s % 4] + 32;
            out.scale_low[s / 2] |= (uint8_t)((stored & 15) << s % 2 * 4);
            out.scale_high[s / 4] |= (uint8_t)((stored >> 4) << s % 4 * 2);
            unpack_nibbles(tile.nibbles[s], row, out.nibbles[s]);
        }
    }

    // acc[r][t] += d * scale_x * sum of scales * sum(value * q), 256 columns in integers.
    template <class Isa, int T, int R>
    INFERNO_INLINE void step(const TileBlock* const (&w)[R], const auto& x, float (*acc)[T][kTileRows]) {
        typename Isa::Scale scales[R][8];
        alignas(64) int32_t total[R][T][kTileRows] = {};
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int s = 0; s < 8; ++s)
                scales[r][s] = Isa::scale_of(Isa::load_bytes((const uint8_t*)w[r]->scales[s / 4]), s % 4);
#pragma GCC unroll 1
        for (int s = 0; s < 8; ++s) {
            for (int r = 0; r < R; ++r) prefetch_part<Isa, 8>(w[r], s);
            typename Isa::ByteSum sum[R][T];
#pragma GCC unroll 4
            for (int m = 0; m < 4; ++m) {
                typename Isa::Bytes codes[2][R];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) load_nibbles<Isa>(w[r]->nibbles[s], m, codes[0][r], codes[1][r]);
#pragma GCC unroll 2
                for (int half = 0; half < 2; ++half) {
                    typename Isa::SignedBytes bytes[R];
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) bytes[r] = Isa::signed_bytes(Isa::lookup(codes[half][r], kIq4Values));
#pragma GCC unroll 16
                    for (int t = 0; t < T; ++t) {
                        const auto four = Isa::broadcast(&x.q[t][32 * s + 16 * half + 4 * m]);
#pragma GCC unroll 4
                        for (int r = 0; r < R; ++r) {
                            if (m == 0 && half == 0) sum[r][t] = Isa::byte_sum(8 * x.sums32[t][paired(s)]);
                            Isa::dot_bytes(sum[r][t], bytes[r], four);
                        }
                    }
                }
            }
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const auto run = Isa::scaled(sum[r][t], scales[r][s]);
                    Isa::store(total[r][t], Isa::add(Isa::load(total[r][t]), run));
                }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const auto d = Isa::load_f16(w[r]->d);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const auto sum = Isa::to_float(Isa::load(total[r][t]));
                const auto product = Isa::mul(d, Isa::splat(x.scale[t]));
                Isa::store(acc[r][t], Isa::fma(sum, product, Isa::load(acc[r][t])));
            }
        }
    }

    // The same for any number of tokens.
    template <class Isa>
    INFERNO_INLINE void step_held(const TileBlock& w, Q8KTokens x, int tokens, float (*acc)[kTileRows]) {
        alignas(64) int32_t total[Isa::kTokens][kTileRows];
        std::memset(total, 0, (size_t)tokens * sizeof total[0]);
#pragma GCC unroll 1
        for (int s = 0; s < 8; ++s) {
            prefetch_part<Isa, 8>(&w, s);
            const auto codes = [&](int m, typename Isa::Bytes& low, typename Isa::Bytes& high) INFERNO_INLINE_LAMBDA {
                load_nibbles<Isa>(w.nibbles[s], m, low, high);
                low = Isa::lookup(low, kIq4Values);
                high = Isa::lookup(high, kIq4Values);
            };
            const auto scale = [&](int) INFERNO_INLINE_LAMBDA {
                return Isa::scale_of(Isa::load_bytes((const uint8_t*)w.scales[s / 4]), s % 4);
            };
            const auto start = [](int, int) INFERNO_INLINE_LAMBDA { return 0; };
            add_held<Isa, 32, 4>(codes, scale, x, tokens, 32 * s, start, total);
        }
        const auto d = Isa::load_f16(w.d);
        const auto nothing = [](int, const auto&, auto a) INFERNO_INLINE_LAMBDA { return a; };
        unrolled<Isa::kSlices>([&](auto s) INFERNO_INLINE_LAMBDA {
            add_totals<Isa>(Isa::slice(d, s), x, tokens, s, total, acc, nothing);
        });
    }

private:
    INFERNO_INLINE int scale(const Block& in, int s) {
        const int low = in.scale_low[s / 2] >> s % 2 * 4 & 15, high = in.scale_high[s / 4] >> s % 4 * 2 & 3;
        return (low | high << 4) - 32;
    }
};

}  // namespace inferno
