#include "bindings/testing.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <stdexcept>

#include "base/check.h"
#include "base/cpu.h"
#include "base/float_environment.h"
#include "bindings/arrays.h"
#include "cases/frozen_model.h"
#include "cases/kernel_cases.h"
#include "kernels/dispatch.h"
#include "runtime/kv_cache.h"
#include "runtime/matrix.h"
#include "runtime/rotation.h"
#include "runtime/sampler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace inferno {
namespace {

using FloatTensor = ConstArray<float, nb::ndim<3>>;
using Rows = nb::ndarray<nb::numpy, float>;

Format format_named(const std::string& name) {
    for (int i = 0; i < kNumFormats; ++i)
        if (name == format_info((Format)i).name) return (Format)i;
    throw std::invalid_argument(name);
}

Activation activation_named(const std::string& name) {
    for (int i = 0; i < kNumActivations; ++i)
        if (name == activation_info((Activation)i).name) return (Activation)i;
    throw std::invalid_argument(name);
}

// A matrix that owns its storage.
struct OwnedMatrix : Matrix {
    OwnedMatrix(ThreadPool& pool, const std::string& format, const std::string& source, const ByteArray& bytes,
                int64_t rows, int64_t columns, int rope_head_dim)
        : Matrix(format_named(format), rows, columns), storage((size_t)size()) {
        place(storage.data());
        pack(pool, 0, rows, format_named(source), bytes.data(), bytes.size(), rope_head_dim);
    }
    Buffer storage;
};

// x: (tokens, columns) copied with the slack that kernels may read.
std::vector<float> with_slack(const float* x, size_t count) {
    std::vector<float> copy(x, x + count);
    copy.resize(count + kBlock, 0.0f);
    return copy;
}

template <class Write>
std::vector<uint8_t> packed_activations(const KernelTable& kernels, Activation kind, int tokens, int64_t columns,
                                        Write write) {
    std::vector<uint8_t> out((size_t)activation_bytes(kind, tokens, columns));
    for (int t = 0; t < tokens; ++t) {
        const int first = t / kernels.tokens * kernels.tokens;
        write(t, PackTarget{kind, out.data() + activation_bytes(kind, first, columns), t - first,
                            std::min(kernels.tokens, tokens - first)});
    }
    return out;
}

Rows matmul(const std::string& isa, ThreadPool& pool, const std::string& format, const std::string& source,
            const ByteArray& weights, int64_t rows, const FloatMatrix& x, std::optional<FloatArray> bias,
            std::optional<FloatMatrix> into, float scale) {
    const KernelTable& kernels = choose_kernels(isa);
    const int tokens = (int)x.shape(0);
    const int64_t columns = (int64_t)x.shape(1);
    const OwnedMatrix m(pool, format, source, weights, rows, columns, 0);
    const std::vector<float> values = with_slack(x.data(), x.size());
    const auto acts =
        packed_activations(kernels, format_info(m.format).activation, tokens, columns,
                           [&](int t, PackTarget to) { kernels.pack(&values[t * columns], columns, to); });
    const std::vector<float> padded_bias = bias ? with_slack(bias->data(), bias->size()) : std::vector<float>();
    std::vector<float> out((size_t)(tokens * rows + kBlock));
    if (into) std::copy(into->data(), into->data() + into->size(), out.begin());
    MatmulArgs args{m.data,
                    m.blocks,
                    rows,
                    0,
                    m.tiles,
                    acts.data(),
                    0,
                    tokens,
                    tokens,
                    bias ? padded_bias.data() : nullptr,
                    out.data(),
                    rows,
                    into.has_value(),
                    scale};
    kernels.matmul[(int)m.format](args);
    return copy_to_numpy(out.data(), {(size_t)tokens, (size_t)rows});
}

Rows unpack(const std::string& isa, ThreadPool& pool, const std::string& format, const std::string& source,
            const ByteArray& weights, int64_t rows, int64_t columns, int rope_head_dim) {
    const KernelTable& kernels = choose_kernels(isa);
    const OwnedMatrix m(pool, format, source, weights, rows, columns, rope_head_dim);
    const int64_t padded = m.blocks * format_info(m.format).columns;
    std::vector<float> out((size_t)(rows * padded));
    for (int64_t r = 0; r < rows; ++r) kernels.unpack_row[(int)m.format](m.data, m.blocks, r, &out[r * padded]);
    return copy_to_numpy(out.data(), {(size_t)rows, (size_t)padded});
}

// "pack": x | "rms_norm": x, weight | "silu_mul", "gelu_mul", "clamped_swiglu": gate, up
//  ->  the bytes of the packed activations
nb::bytes pack(const std::string& isa, const std::string& op, const std::string& kind, const FloatMatrix& x,
               std::optional<FloatMatrix> other, float epsilon, float limit) {
    const KernelTable& kernels = choose_kernels(isa);
    const int tokens = (int)x.shape(0);
    const int64_t columns = (int64_t)x.shape(1);
    const std::vector<float> values = with_slack(x.data(), x.size());
    const std::vector<float> more = other ? with_slack(other->data(), other->size()) : std::vector<float>();
    const auto out = packed_activations(kernels, activation_named(kind), tokens, columns, [&](int t, PackTarget to) {
        if (op == "pack") kernels.pack(&values[t * columns], columns, to);
        if (op == "rms_norm") kernels.rms_norm(&values[t * columns], more.data(), columns, epsilon, to);
        if (op == "silu_mul") kernels.silu_mul(&values[t * columns], &more[t * columns], columns, to);
        if (op == "gelu_mul") kernels.gelu_mul(&values[t * columns], &more[t * columns], columns, to);
        if (op == "clamped_swiglu")
            kernels.clamped_swiglu(&values[t * columns], &more[t * columns], columns, limit, to);
    });
    return nb::bytes((const char*)out.data(), out.size());
}

// Keys and values of one layer in pages: k, v: (positions, kv_heads, head_dim).
struct FilledCache {
    FilledCache(const KernelTable& kernels, CacheType type, const FloatTensor& k, const FloatTensor& v, float garbage)
        : kv_heads((int)k.shape(1)),
          dim((int)k.shape(2)),
          positions((int64_t)k.shape(0)),
          pool(std::make_shared<PagePool>(1, kv_heads, dim, type)),
          cache(pool) {
        cache.reserve(positions);
        // What a page held before must not matter.
        for (uint8_t* page : cache.pages()) {
            uint8_t* const end = page + pool->page_bytes();
            type == CacheType::f32 ? std::fill((float*)page, (float*)end, garbage)
                                   : std::fill((f16*)page, (f16*)end, f32_to_f16(garbage));
        }
        const std::vector<float> keys = with_slack(k.data(), k.size()), values = with_slack(v.data(), v.size());
        for (int64_t p = 0; p < positions; ++p)
            for (int h = 0; h < kv_heads; ++h)
                kernels.store_kv[(int)type](&keys[(p * kv_heads + h) * dim], &values[(p * kv_heads + h) * dim], dim,
                                            (int)(p % kPagePositions),
                                            cache.pages()[p / kPagePositions] + pool->head_offset(0, h));
    }
    int kv_heads, dim;
    int64_t positions;
    std::shared_ptr<PagePool> pool;
    KvCache cache;
};

// q, out: (tokens, heads, head_dim), of the last `tokens` of the positions of the cache
void attend(const KernelTable& kernels, const FilledCache& kv, const float* q, int tokens, int heads, float scale,
            bool splits_apart, int unit_tokens, float* out, int64_t window = 0, float softcap = 0.0f,
            const float* sinks = nullptr) {
    const int dim = kv.dim, padded = (int)round_up(dim, 16), group = heads / kv.kv_heads;
    const int64_t stride = attention_state_floats(padded);
    const auto attention = kernels.attention[(int)kv.pool->type()];
    std::vector<const float*> queries((size_t)(unit_tokens * group));
    std::vector<size_t> places(queries.size());
    std::vector<float> state((size_t)(unit_tokens * group * stride)), part(state.size());
    std::vector<float> scratch((size_t)attention_scratch_floats(unit_tokens * group, padded));
    for (int h = 0; h < kv.kv_heads; ++h)
        for (int first = 0; first < tokens; first += unit_tokens) {
            const int count = std::min(unit_tokens, tokens - first), rows = count * group;
            for (int r = 0; r < rows; ++r) {
                places[r] = ((size_t)(first + r / group) * heads + h * group + r % group) * dim;
                queries[r] = q + places[r];
            }
            const int64_t splits = ceil_div(kv.positions - tokens + first + count, kSplit);
            AttentionArgs args{queries.data(),
                               rows,
                               group,
                               kv.positions - tokens + first,
                               kv.cache.pages().data(),
                               kv.pool->head_offset(0, h),
                               dim,
                               padded,
                               scale,
                               window,
                               softcap,
                               0,
                               splits,
                               state.data(),
                               scratch.data()};
            if (!splits_apart) {
                attention(args);
            } else {
                for (int64_t s = 0; s < splits; ++s) {
                    args.first_split = s, args.last_split = s + 1;
                    args.state = s == 0 ? state.data() : part.data();
                    attention(args);
                    for (int r = 0; s > 0 && r < rows; ++r)
                        kernels.merge_states(&state[r * stride], &part[r * stride], padded);
                }
            }
            for (int r = 0; r < rows; ++r)
                kernels.finish_state(&state[r * stride], dim, padded,
                                     sinks ? sinks[h * group + r % group] : -__builtin_inff(), &out[places[r]]);
        }
}

Rows attention(const std::string& isa, const std::string& cache_type, const FloatTensor& q, const FloatTensor& k,
               const FloatTensor& v, float scale, bool splits_apart, int unit_tokens, float garbage, int64_t window,
               float softcap, std::optional<FloatArray> sinks) {
    const KernelTable& kernels = choose_kernels(isa);
    const FilledCache kv(kernels, cache_type_named(cache_type), k, v, garbage);
    const std::vector<float> queries = with_slack(q.data(), q.size());
    std::vector<float> out(q.size());
    attend(kernels, kv, queries.data(), (int)q.shape(0), (int)q.shape(1), scale, splits_apart, unit_tokens, out.data(),
           window, softcap, sinks ? sinks->data() : nullptr);
    return copy_to_numpy(out.data(), {q.shape(0), q.shape(1), q.shape(2)});
}

Rows rope(const std::string& isa, const FloatMatrix& x, int head_dim, int64_t position, const FloatArray& frequencies) {
    const KernelTable& kernels = choose_kernels(isa);
    std::vector<float> out(x.data(), x.data() + x.size());
    const std::vector<float> inverse(frequencies.data(), frequencies.data() + frequencies.size());
    std::vector<float> cos(inverse.size()), sin(inverse.size());
    const int heads = (int)x.shape(1) / head_dim;
    for (size_t t = 0; t < x.shape(0); ++t) {
        rotation(position + (int64_t)t, inverse, cos.data(), sin.data());
        kernels.rope(&out[t * x.shape(1)], heads, head_dim, (int)inverse.size(), cos.data(), sin.data());
    }
    return copy_to_numpy(out.data(), {x.shape(0), x.shape(1)});
}

// x: (tokens, columns), normalized row by row and added to `into` if it is given
Rows rms_norm_rows(const std::string& isa, const FloatMatrix& x, const FloatArray& weight, float epsilon,
                   std::optional<FloatMatrix> into) {
    const KernelTable& kernels = choose_kernels(isa);
    const std::vector<float> values = with_slack(x.data(), x.size()), w = with_slack(weight.data(), weight.size());
    std::vector<float> out = into ? with_slack(into->data(), into->size()) : std::vector<float>(values.size());
    const int64_t columns = (int64_t)x.shape(1);
    for (size_t t = 0; t < x.shape(0); ++t)
        kernels.rms_norm_rows(&values[t * columns], w.data(), columns, epsilon, into.has_value(), &out[t * columns]);
    return copy_to_numpy(out.data(), {x.shape(0), x.shape(1)});
}

Rows softcap(const std::string& isa, const FloatArray& x, float limit) {
    std::vector<float> out = with_slack(x.data(), x.size());
    choose_kernels(isa).softcap(out.data(), (int64_t)x.size(), limit);
    return copy_to_numpy(out.data(), {x.size()});
}

// logits: (tokens, experts) -> (tokens, chosen) numbers and weights
nb::tuple route(const std::string& isa, const FloatMatrix& logits, int chosen, bool normalize) {
    const int experts = (int)logits.shape(1);
    check(chosen > 0 && chosen <= experts && experts <= kMaxExperts, "some of the experts are chosen");
    std::vector<float> values = with_slack(logits.data(), logits.size()), weights(logits.shape(0) * chosen);
    std::vector<int32_t> ids(weights.size());
    for (size_t t = 0; t < logits.shape(0); ++t)
        choose_kernels(isa).route(&values[t * experts], experts, chosen, normalize, &ids[t * chosen],
                                  &weights[t * chosen]);
    return nb::make_tuple(copy_to_numpy(ids.data(), {logits.shape(0), (size_t)chosen}),
                          copy_to_numpy(weights.data(), {logits.shape(0), (size_t)chosen}));
}

// rows: (count, columns), weights: (count) -> (columns)
Rows combine(const std::string& isa, const FloatMatrix& rows, const FloatArray& weights,
             std::optional<FloatArray> into) {
    const int64_t columns = (int64_t)rows.shape(1);
    const std::vector<float> values = with_slack(rows.data(), rows.size());
    std::vector<const float*> places;
    for (size_t i = 0; i < rows.shape(0); ++i) places.push_back(&values[i * columns]);
    std::vector<float> out =
        into ? with_slack(into->data(), into->size()) : std::vector<float>((size_t)columns + kBlock);
    choose_kernels(isa).combine(places.data(), weights.data(), (int)places.size(), columns, into.has_value(),
                                out.data());
    return copy_to_numpy(out.data(), {(size_t)columns});
}

Rows exp(const std::string& isa, const FloatArray& x) {
    std::vector<float> out(x.size());
    choose_kernels(isa).exp(x.data(), out.data(), (int64_t)x.size());
    return copy_to_numpy(out.data(), {x.size()});
}

// Seconds of each of `runs`, in which every thread of the pool does `calls` times `work(thread)`; after one call
// that warms up.
std::vector<double> timed(ThreadPool& pool, int calls, int runs, const auto& work) {
    check(calls > 0 && runs > 0, "calls and runs to time");
    const nb::gil_scoped_release release;
    pool.parallel_for(pool.size(), work);
    std::vector<double> seconds;
    for (int run = 0; run < runs; ++run) {
        const auto began = std::chrono::steady_clock::now();
        pool.parallel_for(pool.size(), [&](int thread) {
            for (int call = 0; call < calls; ++call) work(thread);
        });
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    return seconds;
}

// Products of a packed matrix of made-up weights, its row tiles shared out among the threads.
std::vector<double> time_matmul(const std::string& isa, ThreadPool& pool, const std::string& format, int64_t rows,
                                int64_t columns, int tokens, int calls, int runs) {
    const KernelTable& kernels = choose_kernels(isa);
    Matrix m(format_named(format), rows, columns);
    Buffer storage((size_t)m.size());
    m.place(storage.data());
    // Bytes 0x30 .. 0x37 are ordinary numbers in every format: nothing denormal, infinite or NaN, nothing slow.
    uint64_t state = 1;
    auto* words = (uint64_t*)storage.data();
    for (int64_t i = 0; i < m.size() / 8; ++i) {  // whole tiles of 16 rows: a multiple of 8 bytes
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        words[i] = 0x3030303030303030u | (state & 0x0707070707070707u);
    }
    std::vector<float> x((size_t)(tokens * columns + kBlock));
    for (size_t i = 0; i < x.size(); ++i) x[i] = (float)(i * 7919 % 255) - 127.0f;
    const auto acts = packed_activations(kernels, format_info(m.format).activation, tokens, columns,
                                         [&](int t, PackTarget to) { kernels.pack(&x[t * columns], columns, to); });
    std::vector<float> out((size_t)(tokens * rows + kBlock));
    return timed(pool, calls, runs, [&](int thread) {
        const int64_t first = m.tiles * thread / pool.size(), last = m.tiles * (thread + 1) / pool.size();
        kernels.matmul[(int)m.format](
            {m.data, m.blocks, rows, first, last, acts.data(), 0, tokens, tokens, nullptr, out.data(), rows, false});
    });
}

// Every thread attends to the same keys and values.
std::vector<double> time_attention(const std::string& isa, ThreadPool& pool, const std::string& cache_type,
                                   const FloatTensor& q, const FloatTensor& k, const FloatTensor& v, int calls,
                                   int runs) {
    const KernelTable& kernels = choose_kernels(isa);
    const FilledCache kv(kernels, cache_type_named(cache_type), k, v, 0.0f);
    const std::vector<float> queries = with_slack(q.data(), q.size());
    std::vector<std::vector<float>> out((size_t)pool.size(), std::vector<float>(q.size()));
    return timed(pool, calls, runs, [&](int thread) {
        attend(kernels, kv, queries.data(), (int)q.shape(0), (int)q.shape(1), 0.1f, false, 4, out[thread].data());
    });
}

// One row, which every thread packs: `op` and `kind` as for pack().
std::vector<double> time_pack(const std::string& isa, ThreadPool& pool, const std::string& op, const std::string& kind,
                              const FloatArray& x, const FloatArray& other, int calls, int runs) {
    const KernelTable& kernels = choose_kernels(isa);
    const int64_t columns = (int64_t)x.size();
    const Activation activation = activation_named(kind);
    const std::vector<float> values = with_slack(x.data(), x.size()), more = with_slack(other.data(), other.size());
    std::vector<std::vector<uint8_t>> out((size_t)pool.size(),
                                          std::vector<uint8_t>((size_t)activation_bytes(activation, 1, columns)));
    return timed(pool, calls, runs, [&](int thread) {
        const PackTarget to{activation, out[thread].data(), 0, 1};
        if (op == "pack") kernels.pack(values.data(), columns, to);
        if (op == "rms_norm") kernels.rms_norm(values.data(), more.data(), columns, 1e-5f, to);
        if (op == "silu_mul") kernels.silu_mul(values.data(), more.data(), columns, to);
    });
}

// How often each chunk of each phase ran, flattened; throws std::runtime_error in chunk `throw_at` of phase 0.
std::vector<int> walk_phases(ThreadPool& pool, const std::vector<int>& counts, int throw_at, bool nested) {
    for (const int count : counts) check(count >= 0 && count <= ThreadPool::kMaxChunks, "chunks of a phase");
    std::vector<size_t> first;
    size_t total = 0;
    for (const int count : counts) first.push_back(total), total += (size_t)count;
    std::vector<std::atomic<int>> runs(total);
    std::vector<std::atomic<int>> finished(counts.size());
    std::atomic<bool> early{false};
    const nb::gil_scoped_release release;
    pool.run(counts, [&](int phase, int chunk) {
        if (phase == 0 && chunk == throw_at) throw std::runtime_error("a chunk failed");
        if (phase > 0 && throw_at < 0 && finished[phase - 1].load() != counts[phase - 1]) early = true;
        if (nested)
            pool.parallel_for(1, [&](int) { runs[first[phase] + chunk].fetch_add(1); });
        else
            runs[first[phase] + chunk].fetch_add(1);
        finished[phase].fetch_add(1);
    });
    if (early) throw std::logic_error("a phase began before the one before it was done");
    return {runs.begin(), runs.end()};
}

// Names of the instruction sets that features stand for.
std::vector<std::string> names_of(const CpuFeatures& features) {
    std::vector<std::string> names;
#define X(isa) \
    if (features.isa) names.push_back(#isa);
    INFERNO_X86_ISAS(X)
    INFERNO_ARM_ISAS(X)
#undef X
    return names;
}

}  // namespace

void bind_testing(nb::module_& m) {
    m.def("matmul", &matmul, "isa"_a, "pool"_a, "format"_a, "source"_a, "weights"_a, "rows"_a, "x"_a,
          "bias"_a = nb::none(), "into"_a = nb::none(), "scale"_a = 1.0f);
    m.def("unpack", &unpack, "isa"_a, "pool"_a, "format"_a, "source"_a, "weights"_a, "rows"_a, "columns"_a,
          "rope_head_dim"_a = 0);
    m.def("pack", &pack, "isa"_a, "op"_a, "kind"_a, "x"_a, "other"_a = nb::none(), "epsilon"_a = 0.0f,
          "limit"_a = 0.0f);
    m.def("rms_norm_rows", &rms_norm_rows, "isa"_a, "x"_a, "weight"_a, "epsilon"_a, "into"_a = nb::none());
    m.def("softcap", &softcap, "isa"_a, "x"_a, "limit"_a);
    m.def("route", &route, "isa"_a, "logits"_a, "chosen"_a, "normalize"_a);
    m.def("combine", &combine, "isa"_a, "rows"_a, "weights"_a, "into"_a = nb::none());
    m.def("attention", &attention, "isa"_a, "cache_type"_a, "q"_a, "k"_a, "v"_a, "scale"_a, "splits_apart"_a = false,
          "unit_tokens"_a = 4, "garbage"_a = 0.0f, "window"_a = 0, "softcap"_a = 0.0f, "sinks"_a = nb::none());
    m.def("rope", &rope, "isa"_a, "x"_a, "head_dim"_a, "position"_a, "inverse_frequencies"_a);
    m.def("exp", &exp, "isa"_a, "x"_a);
    m.def("time_matmul", &time_matmul, "isa"_a, "pool"_a, "format"_a, "rows"_a, "columns"_a, "tokens"_a, "calls"_a,
          "runs"_a);
    m.def("time_attention", &time_attention, "isa"_a, "pool"_a, "cache_type"_a, "q"_a, "k"_a, "v"_a, "calls"_a,
          "runs"_a);
    m.def("time_pack", &time_pack, "isa"_a, "pool"_a, "op"_a, "kind"_a, "x"_a, "other"_a, "calls"_a, "runs"_a);
    m.def("walk_phases", &walk_phases, "pool"_a, "counts"_a, "throw_at"_a = -1, "nested"_a = false);
    m.def("uniform", &uniform, "seed"_a, "position"_a, "choice"_a);
    m.def("f32_to_f16", [](float x) { return f32_to_f16(x); }, "x"_a);
    m.def("f16_to_f32", [](f16 x) { return f16_to_f32(x); }, "x"_a);
    m.def("f32_to_bf16", [](float x) { return f32_to_bf16(x); }, "x"_a);
    m.def(
        "kernel_cases",
        [](const std::string& isa) {
            std::vector<std::tuple<std::string, int64_t, uint64_t>> all;
            for (const KernelCases& cases : kernel_cases(choose_kernels(isa)))
                all.emplace_back(cases.name, cases.count, cases.hash);
            return all;
        },
        "isa"_a);
    m.def(
        "freeze",
        [](const Model& model) {
            const std::string bytes = freeze(model);
            return nb::bytes(bytes.data(), bytes.size());
        },
        "model"_a);
    m.attr("X86_WORDS") =
        nb::make_tuple("highest_leaf", "leaf1_ecx", "leaf7_ebx", "leaf7_ecx", "leaf7_1_eax", "saved_registers");
    m.def(
        "x86_features",
        [](uint32_t highest_leaf, uint32_t leaf1_ecx, uint32_t leaf7_ebx, uint32_t leaf7_ecx, uint32_t leaf7_1_eax,
           uint32_t saved_registers) {
            return names_of(
                features_of(X86Words{highest_leaf, leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_1_eax, saved_registers}));
        },
        "highest_leaf"_a, "leaf1_ecx"_a, "leaf7_ebx"_a, "leaf7_ecx"_a, "leaf7_1_eax"_a, "saved_registers"_a);
    m.def(
        "arm_features", [](uint64_t hwcap, uint64_t hwcap2) { return names_of(features_of(ArmWords{hwcap, hwcap2})); },
        "hwcap"_a, "hwcap2"_a);
    m.attr("FLUSHES") = FloatEnvironment::kFlushes;
    m.def("float_control", &FloatEnvironment::control);
    m.def("set_float_control", &FloatEnvironment::set_control, "word"_a);
    m.def("token_tile", [](const std::string& isa) { return choose_kernels(isa).tokens; }, "isa"_a);
}

}  // namespace inferno
