#include "cases/kernel_cases.h"

#include <algorithm>
#include <chrono>

#include "base/buffer.h"
#include "base/float_environment.h"
#include "runtime/rotation.h"

namespace inferno {
namespace {

// ---- inputs: by a generator of our own and exact arithmetic, so that every machine has the same -----

struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15u + 1) {}
    uint32_t next() {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (uint32_t)(state >> 32);
    }
    int below(int n) { return (int)(next() % (uint32_t)n); }
    float number() { return (float)((int)(next() >> 8) - (1 << 23)) * 0x1p-22f; }  // -2 .. 2
};

enum Kind { ordinary, extreme };
constexpr const char* kKindNames[] = {"ordinary", "extreme"};

// Zero, the subnormals' ends, the smallest normal, ordinary ones, the largest.
constexpr f16 kHalves[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x2E66, 0xAE66, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF};
// All nibbles 0 or 15, halves of each; as int8 also -1, -128, 127, -127.
constexpr uint8_t kBytes[] = {0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F, 0x81};

f16 half(Random& random, Kind kind) {
    if (kind == extreme) return kHalves[random.below((int)std::size(kHalves))];
    return f32_to_f16(random.number() * 0.125f);
}

template <class Format>
typename Format::Block random_block(Random& random, Kind kind) {
    typename Format::Block block;
    auto* bytes = (uint8_t*)&block;
    const bool uniform = kind == extreme && random.below(5) < 3;
    const uint8_t fill = kBytes[random.below((int)std::size(kBytes))];
    for (size_t i = 0; i < sizeof block; ++i) bytes[i] = uniform ? fill : (uint8_t)random.next();
    if constexpr (requires { block.w; }) {
        for (auto& w : block.w) {
            float x = random.number();
            if (kind == extreme)
                x *= random.below(4) ? 1.0f : random.below(2) ? 0x1p13f : sizeof w == 2 ? 0x1p-20f : 0x1p-140f;
            float floats[kBlock] = {x};
            typename Format::Block encoded;
            Format::encode(floats, encoded);
            w = encoded.w[0];
        }
    }
    if constexpr (requires { block.scale; }) block.scale = half(random, kind);
    if constexpr (requires { block.minimum; }) block.minimum = half(random, kind);
    if constexpr (requires { block.d; }) block.d = half(random, kind);
    if constexpr (requires { block.dmin; }) block.dmin = half(random, kind);
    if constexpr (requires { block.exponent; }) {
        constexpr uint8_t kExponents[] = {0, 1, 2, 3, 127, 128, 140};
        block.exponent =
            kind == extreme ? kExponents[random.below((int)std::size(kExponents))] : (uint8_t)(120 + random.below(10));
    }
    return block;
}

// Blocks of 32 that are each of one kind: ends of int8, ties, zeros, tiny and huge values.
std::vector<float> activations(Random& random, Kind kind, int64_t count) {
    std::vector<float> x((size_t)(count + kBlock), 0.0f);
    for (int64_t first = 0; first < count; first += kBlock) {
        const int which = kind == ordinary ? 9 : random.below(10);
        for (int64_t i = first; i < std::min(count, first + kBlock); ++i) {
            const float sign = random.below(2) ? 1.0f : -1.0f;
            const float number = random.number();
            switch (which) {
                case 0: x[i] = 127.0f; break;
                case 1: x[i] = -127.0f; break;
                case 2: x[i] = sign * 127.0f; break;
                case 3: x[i] = i == first ? 127.0f : (float)random.below(253) - 126.5f; break;
                case 4: x[i] = sign * 0.0f; break;
                case 5: x[i] = number * 0x1p-140f; break;
                case 6: x[i] = number * 0x1p-90f; break;
                case 7: x[i] = number * 0x1p80f; break;
                case 8: x[i] = i == first + 17 ? -1e6f : number; break;
                default: x[i] = number;
            }
        }
    }
    return x;
}

// ---- answers ------------------------------------------------------------------------------------

struct Cases {
    std::vector<KernelCases> all;
    void begin(std::string name) { all.push_back({std::move(name), 0, 0xCBF29CE484222325u}); }
    void add(const void* data, size_t bytes) {
        KernelCases& last = all.back();
        ++last.count;
        for (size_t i = 0; i < bytes; ++i) last.hash = (last.hash ^ ((const uint8_t*)data)[i]) * 0x100000001B3u;
    }
};

std::vector<uint8_t> packed(const KernelTable& kernels, Activation kind, const float* x, int tokens, int64_t columns) {
    std::vector<uint8_t> out((size_t)activation_bytes(kind, tokens, columns));
    for (int t = 0; t < tokens; ++t) {
        const int first = t / kernels.tokens * kernels.tokens;
        kernels.pack(x + t * columns, columns,
                     {kind, out.data() + activation_bytes(kind, first, columns), t - first,
                      std::min(kernels.tokens, tokens - first)});
    }
    return out;
}

constexpr int kMostRows = 17, kMostTokens = 17;
// Blocks of 256 columns are taken apart for so many tokens, on every instruction set; the last is one more than
// are taken at once.
constexpr int kManyTokens[] = {16, 35, 97, kExpandedTokens + 1};

template <class Format>
void matmul_cases(const KernelTable& kernels, Format, int format, Cases& cases) {
    // Floats may end within a block; the others are packed from whole ones.
    constexpr bool kFloats = Format::kActivation == Activation::f32;
    const std::vector<int64_t> widths =
        kFloats ? std::vector<int64_t>{1, 31, 33, 65} : std::vector<int64_t>{Format::kColumns, 3 * Format::kColumns};
    for (const Kind kind : {ordinary, extreme})
        for (const int64_t columns : widths) {
            cases.begin(std::string("matmul ") + Format::kName + " " + std::to_string(columns) + " " +
                        kKindNames[kind]);
            Random random((uint64_t)(format * 1000 + columns * 2 + kind));
            const int64_t blocks = ceil_div(columns, Format::kColumns);
            Buffer storage(2 * (size_t)blocks * sizeof(typename Format::TileBlock));
            std::memset(storage.data(), 0, storage.size());
            auto* tiles = (typename Format::TileBlock*)storage.data();
            for (int64_t row = 0; row < kMostRows; ++row)
                for (int64_t b = 0; b < blocks; ++b) {
                    auto block = random_block<Format>(random, kind);
                    if constexpr (kFloats)
                        for (int64_t i = columns - b * kBlock; i < kBlock; ++i) block.w[i] = 0;
                    Format::pack_row(block, (int)(row % kTileRows), tiles[row / kTileRows * blocks + b]);
                }
            constexpr bool kExpands = SuperBlock<Format>;
            const auto x = activations(random, kind, (kExpands ? kExpandedTokens + 1 : kMostTokens) * columns);
            const auto bias = activations(random, ordinary, kMostRows);
            const auto multiply = [&](int tokens, int first_rows) {
                const auto acts = packed(kernels, Format::kActivation, x.data(), tokens, columns);
                for (int rows = first_rows; rows <= kMostRows; ++rows) {
                    std::vector<float> out((size_t)(tokens * rows + kBlock), 0.25f);
                    const bool plain = rows % 2;
                    kernels.matmul[format]({storage.data(), blocks, rows, 0, ceil_div(rows, kTileRows), acts.data(), 0,
                                            tokens, tokens, plain ? nullptr : bias.data(), out.data(), rows, !plain,
                                            plain ? 1.0f : 0.75f});
                    cases.add(out.data(), sizeof(float) * tokens * rows);
                }
            };
            for (int tokens = 1; tokens <= kMostTokens; ++tokens) multiply(tokens, 1);
            if constexpr (kExpands)
                for (const int tokens : kManyTokens) multiply(tokens, kTileRows);
            std::vector<float> row((size_t)(blocks * Format::kColumns));
            for (int64_t r = 0; r < kMostRows; ++r) {
                kernels.unpack_row[format](storage.data(), blocks, r, row.data());
                cases.add(row.data(), sizeof(float) * row.size());
            }
        }
}

void pack_cases(const KernelTable& kernels, Cases& cases) {
    for (int a = 0; a < kNumActivations; ++a)
        for (const Kind kind : {ordinary, extreme}) {
            const auto activation = (Activation)a;
            cases.begin(std::string("pack ") + activation_info(activation).name + " " + kKindNames[kind]);
            Random random((uint64_t)(77 + 2 * a + kind));
            for (const int64_t columns : {1, 15, 16, 17, 31, 32, 33, 64, 255, 256, 300}) {
                const auto x = activations(random, kind, columns), other = activations(random, ordinary, columns);
                std::vector<uint8_t> out((size_t)activation_bytes(activation, 1, columns));
                const PackTarget to{activation, out.data(), 0, 1};
                const auto add = [&] { cases.add(out.data(), out.size()); };
                kernels.pack(x.data(), columns, to), add();
                kernels.rms_norm(x.data(), other.data(), columns, 1e-5f, to), add();
                kernels.silu_mul(x.data(), other.data(), columns, to), add();
                kernels.gelu_mul(x.data(), other.data(), columns, to), add();
                kernels.clamped_swiglu(x.data(), other.data(), columns, 7.0f, to), add();
            }
        }
}

void row_cases(const KernelTable& kernels, Cases& cases) {
    for (const Kind kind : {ordinary, extreme}) {
        cases.begin(std::string("rows ") + kKindNames[kind]);
        Random random((uint64_t)(99 + kind));
        for (const int64_t columns : {1, 15, 16, 17, 40, 64, 100}) {
            const auto x = activations(random, kind, columns), other = activations(random, ordinary, columns);
            const auto add = [&](const std::vector<float>& y) { cases.add(y.data(), sizeof(float) * columns); };
            auto y = other;
            kernels.rms_norm_rows(x.data(), other.data(), columns, 1e-5f, false, y.data()), add(y);
            kernels.rms_norm_rows(x.data(), other.data(), columns, 1e-5f, true, y.data()), add(y);
            y = x;
            kernels.softcap(y.data(), columns, 30.0f), add(y);
            kernels.exp(x.data(), y.data(), columns), add(y);
            const float* rows[] = {x.data(), other.data(), x.data()};
            const float weights[] = {0.5f, 0.25f, -0.125f};
            kernels.combine(rows, weights, 3, columns, false, y.data()), add(y);
            kernels.combine(rows, weights, 2, columns, true, y.data()), add(y);
        }
    }
    cases.begin("rope and route");
    Random random(101);
    for (const int head_dim : {8, 20, 64}) {
        const std::vector<float> frequencies = activations(random, ordinary, head_dim / 2);
        const std::vector<float> inverse(frequencies.begin(), frequencies.begin() + head_dim / 2);
        std::vector<float> cos(inverse.size()), sin(inverse.size());
        rotation(1234, inverse, cos.data(), sin.data());
        auto x = activations(random, ordinary, 3 * head_dim);
        kernels.rope(x.data(), 3, head_dim, (int)inverse.size(), cos.data(), sin.data());
        cases.add(x.data(), sizeof(float) * 3 * head_dim);
    }
    for (const int experts : {1, 4, 17, 60})
        for (const bool normalize : {false, true}) {
            auto logits = activations(random, ordinary, experts);
            const int chosen = std::min(experts, 4);
            int32_t ids[4];
            float weights[4];
            kernels.route(logits.data(), experts, chosen, normalize, ids, weights);
            cases.add(ids, sizeof(int32_t) * chosen);
            cases.add(weights, sizeof(float) * chosen);
        }
}

void attention_cases(const KernelTable& kernels, CacheType type, Cases& cases) {
    cases.begin(std::string("attention ") + cache_type_info(type, 1).name);
    Random random(103);
    for (const int dim : {8, 24, 64})
        for (const int positions : {1, 17, 64, 65, 600})
            for (const int group : {1, 3}) {
                const int padded = (int)round_up(dim, 16), tokens = std::min(positions, 5), rows = tokens * group;
                const int64_t pages = ceil_div(positions, kPagePositions);
                const int64_t page_bytes = 2 * cache_type_info(type, dim).half_bytes;
                std::vector<uint8_t> storage((size_t)(pages * page_bytes), 0);
                std::vector<uint8_t*> places;
                for (int64_t p = 0; p < pages; ++p) places.push_back(storage.data() + p * page_bytes);
                for (int p = 0; p < positions; ++p) {
                    const auto k = activations(random, ordinary, padded), v = activations(random, ordinary, padded);
                    kernels.store_kv[(int)type](k.data(), v.data(), dim, p % kPagePositions,
                                                places[p / kPagePositions]);
                }
                cases.add(storage.data(), storage.size());
                for (int p = 0; p < 9; ++p) {  // what is stored of extremes; nobody attends to it
                    const auto k = activations(random, extreme, padded), v = activations(random, extreme, padded);
                    std::vector<uint8_t> page((size_t)page_bytes);
                    kernels.store_kv[(int)type](k.data(), v.data(), dim, p, page.data());
                    cases.add(page.data(), page.size());
                }
                const auto q = activations(random, ordinary, rows * padded);
                std::vector<const float*> queries;
                for (int r = 0; r < rows; ++r) queries.push_back(q.data() + r * padded);
                const int64_t stride = attention_state_floats(padded), splits = ceil_div(positions, kSplit);
                std::vector<float> state((size_t)(rows * stride)), part(state);
                std::vector<float> scratch((size_t)attention_scratch_floats(rows, padded));
                const auto finish = [&] {
                    for (int r = 0; r < rows; ++r) {
                        std::vector<float> out((size_t)dim);
                        const float sink = r % 2 ? 0.5f : -__builtin_inff();
                        kernels.finish_state(&state[r * stride], dim, padded, sink, out.data());
                        cases.add(out.data(), sizeof(float) * dim);
                    }
                };
                AttentionArgs args{
                    queries.data(), rows, group,  positions - tokens, places.data(), 0, dim, padded, 0.3f, 0,
                    0.0f,           0,    splits, state.data(),       scratch.data()};
                kernels.attention[(int)type](args), finish();
                args.window = 7, args.softcap = 5.0f;
                kernels.attention[(int)type](args), finish();
                args.window = 0;
                for (int64_t s = 0; s < splits; ++s) {
                    args.first_split = s, args.last_split = s + 1;
                    args.state = s == 0 ? state.data() : part.data();
                    kernels.attention[(int)type](args);
                    for (int r = 0; s > 0 && r < rows; ++r)
                        kernels.merge_states(&state[r * stride], &part[r * stride], padded);
                }
                finish();
            }
}

template <class F>
double rate_of(const KernelTable& kernels, Format format) {
    constexpr int64_t kRows = 128, kBlocks = 2048 / F::kColumns;
    constexpr int kTokens = 128;
    Random random(7);
    Buffer tiles(kRows / kTileRows * kBlocks * sizeof(typename F::TileBlock));
    for (int64_t row = 0; row < kRows; ++row)
        for (int64_t b = 0; b < kBlocks; ++b)
            F::pack_row(random_block<F>(random, ordinary), (int)(row % kTileRows),
                        ((typename F::TileBlock*)tiles.data())[row / kTileRows * kBlocks + b]);
    const int64_t columns = kBlocks * F::kColumns;
    const auto x =
        packed(kernels, F::kActivation, activations(random, ordinary, kTokens * columns).data(), kTokens, columns);
    std::vector<float> out((size_t)(kTokens * kRows));
    const MatmulArgs args{tiles.data(), kBlocks,    kRows, 0,    kRows / kTileRows, x.data(), 0, kTokens, kTokens,
                          nullptr,      out.data(), kRows, false};
    using Clock = std::chrono::steady_clock;
    double least = 1e9;
    for (const auto end = Clock::now() + std::chrono::seconds(1); Clock::now() < end;) {
        const auto began = Clock::now();
        kernels.matmul[(int)format](args);
        least = std::min(least, std::chrono::duration<double>(Clock::now() - began).count());
    }
    return (double)kRows * (double)columns * kTokens / least;
}

}  // namespace

double matmul_rate(const KernelTable& kernels, Format format) {
    const FloatEnvironment environment;
    return with_format(format, [&](auto type) { return rate_of<decltype(type)>(kernels, format); });
}

std::vector<KernelCases> kernel_cases(const KernelTable& kernels) {
    const FloatEnvironment environment;
    Cases cases;
#define X(Type, name) matmul_cases(kernels, Type{}, (int)Format::name, cases);
    INFERNO_FORMATS(X)
#undef X
    pack_cases(kernels, cases);
    row_cases(kernels, cases);
    for (int type = 0; type < kNumCacheTypes; ++type) attention_cases(kernels, (CacheType)type, cases);
    return cases.all;
}

}  // namespace inferno
