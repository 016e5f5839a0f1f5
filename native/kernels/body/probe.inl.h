// What the machine can do at best, measured with the instructions that the kernels use: the figures that
// a benchmark's are shares of.
#pragma once
#include "kernels/table.h"

namespace inferno {

// `blocks` times the integer work of a register tile (16 rows x 32 columns x kTokens tokens multiply-adds, or as many
// of more rows and fewer tokens) and its float step, on one block that never leaves L1.
template <class Isa>
float probe_dot(int64_t blocks) {
    constexpr int T = Isa::kPartTokens, R = Isa::kTiles;
    static_assert(T * R == Isa::kTokens);
    alignas(64) Q4_0::TileBlock w[R];
    alignas(64) Q8Block<T> x;
    alignas(64) float acc[R][T][kTileRows] = {};
    std::memset(&w, 0x35, sizeof w);
    std::memset(&x, 1, sizeof x);
    for (int t = 0; t < T; ++t) x.scale[t] = 0x1p-20f;  // not denormal, which would be slow
    for (int64_t b = 0; b < blocks; ++b) {
        INFERNO_MAY_CHANGE(&w);  // or the compiler would do the constant block's work once
        INFERNO_MAY_CHANGE(&x);
        const Q4_0::TileBlock* tiles[R];
        for (int r = 0; r < R; ++r) tiles[r] = &w[r];
        Q4_0::step<Isa, T>(tiles, x, acc);
    }
    auto sum = Isa::zero();  // of everything, or what is not used would not be computed
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) sum = Isa::add(sum, Isa::load(acc[r][t]));
    return Isa::reduce_add(sum);
}

// `steps` times kProbeChains fused multiply-adds of 16 lanes, independent of one another.
template <class Isa>
float probe_fma(int64_t steps) {
    typename Isa::F32 sum[kProbeChains];
    for (int i = 0; i < kProbeChains; ++i) sum[i] = Isa::splat((float)i);
    const auto a = Isa::splat(0.999f), b = Isa::splat(0.001f);
    for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 8
        for (int i = 0; i < kProbeChains; ++i) sum[i] = Isa::fma(sum[i], a, b);
    }
    for (int i = 1; i < kProbeChains; ++i) sum[0] = Isa::add(sum[0], sum[i]);
    return Isa::reduce_add(sum[0]);
}

// Read `bytes` (a multiple of 256) once, in order, a few kilobytes ahead of the loads.
template <class Isa>
float probe_read(const uint8_t* data, int64_t bytes) {
    auto a = Isa::zero(), b = Isa::zero();
    for (int64_t i = 0; i < bytes; i += 256) {
        for (int line = 0; line < 256; line += 64) Isa::prefetch(data + i + 2304 + line);
        a = Isa::max(a, Isa::load((const float*)(data + i)));
        b = Isa::max(b, Isa::load((const float*)(data + i + 64)));
        a = Isa::max(a, Isa::load((const float*)(data + i + 128)));
        b = Isa::max(b, Isa::load((const float*)(data + i + 192)));
    }
    return Isa::reduce_max(Isa::max(a, b));
}

}  // namespace inferno
