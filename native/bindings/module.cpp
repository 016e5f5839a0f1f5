// The border with Python: everything crosses here and nothing is decided here. Long calls let the GIL go.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/unordered_set.h>
#include <nanobind/stl/vector.h>

#include "base/check.h"
#include "bindings/arrays.h"
#include "bindings/testing.h"
#include "kernels/dispatch.h"
#include "runtime/encode.h"
#include "runtime/executor.h"
#include "runtime/probe.h"
#include "runtime/sampler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace inferno {
namespace {

Format format_named(const std::string& name) {
#define X(Type, format) \
    if (name == Type::kName) return Format::format;
    INFERNO_FORMATS(X)
#undef X
    throw Error("native-error", "Unknown weight format `" + name + "`");
}

OpKind op_kind_named(const std::string& name) {
#define X(kind) \
    if (name == #kind) return OpKind::kind;
    INFERNO_OP_KINDS(X)
#undef X
    throw Error("native-error", "Unknown operation `" + name + "`");
}

Quantizer quantizer_named(const std::string& name) {
#define X(quantizer) \
    if (name == #quantizer) return Quantizer::quantizer;
    INFERNO_QUANTIZERS(X)
#undef X
    throw Error("native-error", "Unknown quantizer `" + name + "`");
}

Activation activation_named(const std::string& name) {
    for (int i = 0; i < kNumActivations; ++i)
        if (name == activation_info((Activation)i).name) return (Activation)i;
    throw Error("native-error", "Unknown activation format `" + name + "`");
}

Extent extent_named(const std::string& name) {
    if (name == "tokens") return Extent::tokens;
    if (name == "selected") return Extent::selected;
    if (name == "routed") return Extent::routed;
    throw Error("native-error", "Unknown extent `" + name + "`");
}

Logits logits_named(const std::string& name) {
    if (name == "none") return Logits::none;
    if (name == "last") return Logits::last;
    if (name == "all") return Logits::all;
    throw Error("native-error", "Unknown choice of logits `" + name + "`");
}

using SliceTuple = std::tuple<int, int64_t, int64_t>;
Slice slice_of(const SliceTuple& s) { return {std::get<0>(s), std::get<1>(s), std::get<2>(s)}; }

std::vector<float> floats_of(const FloatArray& array) { return {array.data(), array.data() + array.size()}; }

// inferno.errors has one class a code.
void raise_in_python(const Error& error) {
    const nb::module_ errors = nb::module_::import_("inferno.errors");
    nb::object kind = errors.attr("NativeError");
    for (nb::handle subclass : errors.attr("InfernoError").attr("__subclasses__")())
        if (nb::cast<std::string>(subclass.attr("code")) == error.code) kind = nb::borrow(subclass);
    const nb::object hint = error.hint.empty() ? nb::object(nb::none()) : nb::object(nb::str(error.hint.c_str()));
    const nb::object value = kind(nb::str(error.message.c_str()), "hint"_a = hint);
    PyErr_SetObject(kind.ptr(), value.ptr());
}

using Batch = std::vector<std::tuple<KvCache*, TokenArray, std::string>>;

std::vector<SequenceRows> rows_of(const Batch& batch) {
    std::vector<SequenceRows> rows;
    for (const auto& [cache, tokens, logits] : batch) {
        for (const auto& other : rows) check(other.cache != cache, "a cache stands once in a batch");
        rows.push_back({cache, tokens.data(), (int)tokens.size(), logits_named(logits)});
    }
    return rows;
}

// One call, so that nothing of Python can run between a pass and the copy of its logits.
nb::ndarray<nb::numpy, float> forward(Executor& executor, const Batch& batch) {
    const std::vector<SequenceRows> rows = rows_of(batch);
    const size_t vocab = (size_t)executor.model().plan().vocab_size;
    size_t count = 0;
    std::unique_ptr<float[]> copy;
    {
        const nb::gil_scoped_release release;
        executor.forward(rows, [&] {
            count = (size_t)executor.num_logits();
            copy = std::make_unique_for_overwrite<float[]>(count * vocab);
            for (size_t i = 0; i < count; ++i)
                std::memcpy(&copy[i * vocab], executor.logits((int)i), vocab * sizeof(float));
        });
    }
    return to_numpy(std::move(copy), {count, vocab});
}

nb::ndarray<nb::numpy, float> forward_hidden(Executor& executor, const Batch& batch) {
    const std::vector<SequenceRows> rows = rows_of(batch);
    const size_t width = (size_t)executor.hidden_size();
    size_t count = 0;
    std::unique_ptr<float[]> copy;
    {
        const nb::gil_scoped_release release;
        executor.forward(
            rows,
            [&] {
                count = (size_t)executor.num_logits();
                // A block of slack: a row is written in whole blocks, each before the one that comes after it.
                copy = std::make_unique_for_overwrite<float[]>(count * width + kBlock);
                for (size_t i = 0; i < count; ++i) executor.hidden((int)i, &copy[i * width]);
            },
            Output::hidden);
    }
    return to_numpy(std::move(copy), {count, width});
}

// The words of a mask, one bit a token, or null.
const uint32_t* words_of(const std::optional<MaskArray>& mask, const Sampler& sampler) {
    if (!mask) return nullptr;
    check((int64_t)mask->size() * 32 >= sampler.num_tokens(), "at least one bit of the mask a token");
    return mask->data();
}

std::vector<int32_t> sample(const std::vector<Sampler*>& samplers, const FloatMatrix& logits,
                            const std::vector<int64_t>& positions, const std::vector<std::optional<MaskArray>>& masks) {
    check(logits.shape(0) == samplers.size() && positions.size() == samplers.size(), "a row and a position a sampler");
    check(masks.empty() || masks.size() == samplers.size(), "no masks, or one a sampler");
    std::vector<const uint32_t*> words(samplers.size(), nullptr);
    for (size_t i = 0; i < samplers.size(); ++i) {
        check(samplers[i]->num_tokens() <= (int64_t)logits.shape(1), "at least one logit a token");
        if (!masks.empty()) words[i] = words_of(masks[i], *samplers[i]);
    }
    std::vector<int32_t> tokens(samplers.size());
    const nb::gil_scoped_release release;
    for (size_t i = 0; i < samplers.size(); ++i)
        tokens[i] = samplers[i]->sample(logits.data() + i * logits.shape(1), positions[i], words[i]);
    return tokens;
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "The native core of inferno: plans, packed weights, KV caches, forward passes, sampling.";
    nb::register_exception_translator(
        [](const std::exception_ptr& p, void*) {
            try {
                std::rethrow_exception(p);
            } catch (const Error& error) {
                raise_in_python(error);
            } catch (const std::bad_alloc&) {
                raise_in_python(Error("out-of-memory", "The system gave no more memory",
                                      "load with a smaller context or smaller weights, or free some memory"));
            }
        },
        nullptr);

    m.def("isas", &supported_isas, "Instruction sets this build has and this CPU can run, best first.");
    m.def(
        "choose_isa", [](const std::string& isa) { return std::string(choose_kernels(isa).name); }, "isa"_a,
        "The instruction set named, or the best for an empty name; an impossible one is InvalidOption.");
    m.def(
        "activations",
        [] {
            std::vector<std::tuple<std::string, int, int64_t>> all;
            for (int i = 0; i < kNumActivations; ++i) {
                const ActivationInfo a = activation_info((Activation)i);
                all.emplace_back(a.name, a.columns, a.block_bytes);
            }
            return all;
        },
        "What matrices read: (name, columns of a block, bytes of a token's block).");
    m.def(
        "formats",
        [] {
            std::vector<std::tuple<std::string, std::string, int, int64_t, int64_t, bool>> all;
            for (int i = 0; i < kNumFormats; ++i) {
                const FormatInfo f = format_info((Format)i);
                all.emplace_back(f.name, activation_info(f.activation).name, f.columns, f.block_bytes,
                                 f.tile_block_bytes, f.encodes);
            }
            return all;
        },
        "Weight formats: (name, activation, columns of a block, bytes of a stored block, bytes of a packed block of 16 "
        "rows, whether floats can be quantized to it).");

    nb::class_<ThreadPool>(m, "ThreadPool", "Threads that walk the phases of a forward pass together.")
        .def(
            "__init__", [](ThreadPool* self, int threads) { new (self) ThreadPool(threads); }, "threads"_a)
        .def_prop_ro("size", &ThreadPool::size);

    m.def(
        "probe_machine",
        [](ThreadPool& pool, const std::string& isa) {
            const KernelTable& kernels = choose_kernels(isa);
            const nb::gil_scoped_release release;
            const MachineLimits limits = probe_machine(pool, kernels);
            return std::tuple(limits.read_bytes_per_second, limits.int8_macs_per_second, limits.float_macs_per_second);
        },
        "pool"_a, "isa"_a,
        "Measure the machine: (bytes read, int8 multiply-adds, float multiply-adds) a second, on all threads.");

    nb::class_<Plan>(m, "Plan", "What a model computes, as data; written once by inferno.lowering.")
        .def(
            "__init__",
            [](Plan* self, int64_t vocab_size, int num_layers, int kv_heads, int head_dim, int experts,
               int experts_per_token) {
                new (self) Plan;
                self->vocab_size = vocab_size;
                self->num_layers = num_layers;
                self->kv_heads = kv_heads;
                self->head_dim = head_dim;
                self->experts = experts;
                self->experts_per_token = experts_per_token;
            },
            "vocab_size"_a, "num_layers"_a, "kv_heads"_a, "head_dim"_a, "experts"_a = 0, "experts_per_token"_a = 0)
        .def(
            "rows",
            [](Plan& p, int64_t columns, const std::string& extent) {
                p.rows.push_back({columns, extent_named(extent)});
                return (int)p.rows.size() - 1;
            },
            "columns"_a, "extent"_a, "Add a buffer of float rows; returns its number.")
        .def(
            "pack",
            [](Plan& p, const std::string& kind, int64_t columns, const std::string& extent) {
                p.packs.push_back({activation_named(kind), columns, extent_named(extent)});
                return (int)p.packs.size() - 1;
            },
            "kind"_a, "columns"_a, "extent"_a, "Add a buffer of packed activations; returns its number.")
        .def(
            "matrix",
            [](Plan& p, const std::string& name, const std::string& format, int64_t rows, int64_t columns) {
                p.matrices.push_back({name, format_named(format), rows, columns});
                return (int)p.matrices.size() - 1;
            },
            "name"_a, "format"_a, "rows"_a, "columns"_a)
        .def(
            "vector",
            [](Plan& p, const std::string& name, const FloatArray& values) {
                p.vectors.push_back({name, floats_of(values)});
                return (int)p.vectors.size() - 1;
            },
            "name"_a, "values"_a)
        .def(
            "rope",
            [](Plan& p, const FloatArray& inverse_frequencies, float factor) {
                p.ropes.push_back({floats_of(inverse_frequencies), factor});
                return (int)p.ropes.size() - 1;
            },
            "inverse_frequencies"_a, "factor"_a)
        .def(
            "op",
            [](Plan& p, const std::string& kind, const SliceTuple& input, const SliceTuple& second,
               const SliceTuple& third, const SliceTuple& output, int pack, int matrix, int vector, bool accumulate,
               float epsilon, float scale, float limit, bool normalize, int layer, int heads, int kv_heads,
               int head_dim, int rope, int64_t window) {
                p.ops.push_back({op_kind_named(kind), slice_of(input), slice_of(second), slice_of(third),
                                 slice_of(output), pack, matrix, vector, accumulate, epsilon, scale, limit, normalize,
                                 layer, heads, kv_heads, head_dim, rope, window});
            },
            "kind"_a, nb::kw_only(), "input"_a = SliceTuple{-1, 0, 0}, "second"_a = SliceTuple{-1, 0, 0},
            "third"_a = SliceTuple{-1, 0, 0}, "output"_a = SliceTuple{-1, 0, 0}, "pack"_a = -1, "matrix"_a = -1,
            "vector"_a = -1, "accumulate"_a = false, "epsilon"_a = 0.0f, "scale"_a = 1.0f, "limit"_a = 0.0f,
            "normalize"_a = false, "layer"_a = -1, "heads"_a = 0, "kv_heads"_a = 0, "head_dim"_a = 0, "rope"_a = -1,
            "window"_a = 0, "Append an operation; slices are (rows, offset, width). See native/runtime/plan.h.");
    nb::class_<Model>(m, "Model", "A plan and its packed weights.")
        .def(
            "__init__", [](Model* self, const Plan& plan) { new (self) Model(plan); }, "plan"_a)
        .def(
            "pack",
            [](Model& self, ThreadPool& pool, int matrix, int64_t first_row, int64_t num_rows,
               const std::string& format, const ByteArray& data, int rope_head_dim) {
                const Format source = format_named(format);
                const nb::gil_scoped_release release;
                self.matrix(matrix).pack(pool, first_row, num_rows, source, data.data(), data.size(), rope_head_dim);
            },
            "pool"_a, "matrix"_a, "first_row"_a, "num_rows"_a, "format"_a, "data"_a, "rope_head_dim"_a = 0,
            "Pack stored rows into a matrix, quantizing if the formats differ.")
        .def_prop_ro("weight_bytes", &Model::weight_bytes);

    nb::class_<PagePool>(m, "PagePool", "Pages of 64 positions of keys and values.")
        .def(
            "__init__",
            [](PagePool* self, int layers, int kv_heads, int head_dim, const std::string& type) {
                check(layers > 0 && kv_heads > 0 && head_dim > 0, "a page has layers, heads and dimensions");
                new (self) PagePool(layers, kv_heads, head_dim, cache_type_named(type));
            },
            "layers"_a, "kv_heads"_a, "head_dim"_a, "type"_a)
        .def_prop_ro("bytes_per_position", &PagePool::bytes_per_position)
        .def_prop_ro("allocated_bytes", &PagePool::allocated_bytes)
        .def_prop_ro("page_bytes", &PagePool::page_bytes)
        .def_prop_ro("pages_in_use", &PagePool::pages_in_use)
        .def_prop_ro("ready_pages", &PagePool::ready_pages, "Free pages whose memory the system has given already.")
        .def("prepare_page", &PagePool::prepare_page, nb::call_guard<nb::gil_scoped_release>(),
             "Have one more of these.");

    nb::class_<Page>(m, "Page", "A page of a pool, kept for other caches to adopt.")
        .def_prop_ro("is_shared", &Page::is_shared);

    nb::class_<KvCache>(m, "KvCache", "Keys and values of one sequence.")
        .def(nb::init<std::shared_ptr<PagePool>>(), "pool"_a)
        .def("__len__", &KvCache::length)
        .def("truncate", &KvCache::truncate, "length"_a)
        .def("page", &KvCache::page, "index"_a, "Share the page that holds positions 64 index and on.")
        .def("adopt", &KvCache::adopt, "pages"_a, "length"_a,
             "Hold the first `length` positions of `pages`, and nothing else.")
        .def(
            "fork", [](const KvCache& self) { return std::make_shared<KvCache>(self); },
            "Share the pages; whoever writes into a shared page copies it first.");

    nb::class_<Executor>(m, "Executor", "Runs forward passes of one model.")
        .def(
            "__init__",
            [](Executor* self, std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool, const std::string& isa) {
                new (self) Executor(model, pool, choose_kernels(isa));
            },
            "model"_a, "pool"_a, "isa"_a)
        .def(
            "forward", &forward, "batch"_a,
            "Process [(cache, token ids, \"none\"|\"last\"|\"all\")]; the caches grow by their ids. Returns the logits "
            "wanted: (rows, vocab_size) f32.")
        .def("forward_hidden", &forward_hidden, "batch"_a,
             "The same, but up to the last norm and not to the logits: (rows, hidden_size) f32.")
        .def_prop_rw(
            "calibrating", [](const Executor& self) { return self.calibration.enabled; },
            [](Executor& self, bool enabled) {
                self.calibration.enabled = enabled;
                std::vector<int64_t> columns;
                if (enabled)
                    for (const auto& matrix : self.model().plan().matrices) columns.push_back(matrix.columns);
                self.calibration.begin(columns);
            },
            "Whether forward passes add up what matrices multiply; setting it forgets earlier sums.")
        .def(
            "mean_squares",
            [](const Executor& self, int matrix) {
                check(matrix >= 0 && matrix < (int)self.calibration.size(), "a matrix that is calibrated");
                const std::vector<double> mean = self.calibration.mean_squares(matrix);
                return copy_to_numpy(mean.data(), {mean.size()});
            },
            "matrix"_a,
            "The mean square of what each column of a matrix was multiplied by since `calibrating` was set: (columns,) "
            "f64; of a matrix that no floats were multiplied by, nothing.")
        .def(
            "log_sum_exp",
            [](const Executor& self, const FloatArray& logits) {
                check(logits.size() > 0, "there are logits");
                return log_sum_exp(self.kernels(), logits.data(), (int64_t)logits.size());
            },
            "logits"_a)
        .def(
            "divergence",
            [](const Executor& self, const FloatArray& logits, double total, const FloatArray& others,
               double other_total) {
                check(logits.size() > 0 && logits.size() == others.size(), "there are logits of one vocabulary");
                return divergence(self.kernels(), logits.data(), total, others.data(), other_total,
                                  (int64_t)logits.size());
            },
            "logits"_a, "total"_a, "others"_a, "other_total"_a)
        .def_prop_rw(
            "profiling", [](const Executor& self) { return self.profile.enabled; },
            [](Executor& self, bool enabled) {
                self.profile.enabled = enabled;
                self.profile.clear();
            },
            "Whether forward passes are timed by phase; setting it forgets earlier times.")
        .def(
            "profile",
            [](const Executor& self) {
                std::vector<std::tuple<std::string, double, double, int64_t>> out;
                for (const auto& [name, e] : self.profile.entries()) out.emplace_back(name, e.wall, e.busy, e.phases);
                return out;
            },
            "(phase, wall seconds, seconds summed over threads, how many) of all passes since `profiling` was set.")
        .def_prop_ro("scratch_bytes", &Executor::scratch_bytes)
        .def_prop_ro("isa", [](const Executor& self) { return std::string(self.kernels().name); });

    nb::class_<Sampler>(m, "Sampler", "Chooses tokens; a draw is keyed by (seed, position, choice).")
        .def(
            "__init__",
            [](Sampler* self, const Executor& executor, int64_t num_tokens, float temperature, int64_t top_k,
               float typical_p, float top_p, float min_p, float repetition_penalty, float presence_penalty,
               float frequency_penalty, int64_t repeat_last_n, float dry_multiplier, float dry_base,
               int64_t dry_allowed_length, int64_t dry_penalty_last_n,
               const std::unordered_set<int32_t>& dry_sequence_breakers, float xtc_probability, float xtc_threshold,
               const std::unordered_map<int32_t, float>& logit_bias, const std::vector<int32_t>& suppress_tokens,
               uint64_t seed, uint32_t choice) {
                new (self) Sampler(executor.kernels(), num_tokens,
                                   {temperature,
                                    top_k,
                                    typical_p,
                                    top_p,
                                    min_p,
                                    repetition_penalty,
                                    presence_penalty,
                                    frequency_penalty,
                                    repeat_last_n,
                                    dry_multiplier,
                                    dry_base,
                                    dry_allowed_length,
                                    dry_penalty_last_n,
                                    dry_sequence_breakers,
                                    xtc_probability,
                                    xtc_threshold,
                                    logit_bias,
                                    suppress_tokens,
                                    seed,
                                    choice});
            },
            "executor"_a, nb::kw_only(), "num_tokens"_a, "temperature"_a, "top_k"_a = 0, "typical_p"_a = 1.0f,
            "top_p"_a = 1.0f, "min_p"_a = 0.0f, "repetition_penalty"_a = 1.0f, "presence_penalty"_a = 0.0f,
            "frequency_penalty"_a = 0.0f, "repeat_last_n"_a = -1, "dry_multiplier"_a = 0.0f, "dry_base"_a = 1.75f,
            "dry_allowed_length"_a = 2, "dry_penalty_last_n"_a = -1,
            "dry_sequence_breakers"_a = std::unordered_set<int32_t>(), "xtc_probability"_a = 0.0f,
            "xtc_threshold"_a = 0.1f, "logit_bias"_a = std::unordered_map<int32_t, float>(),
            "suppress_tokens"_a = std::vector<int32_t>(), "seed"_a, "choice"_a = 0,
            "What is not said is off. `repeat_last_n` and `dry_penalty_last_n`: -1 for the whole text.")
        .def(
            "accept",
            [](Sampler& self, const TokenArray& tokens, bool generated) {
                for (size_t i = 0; i < tokens.size(); ++i) self.accept(tokens.data()[i], generated);
            },
            "tokens"_a, "generated"_a)
        .def(
            "sample",
            [](Sampler& self, const FloatArray& logits, int64_t position, const std::optional<MaskArray>& mask) {
                check((int64_t)logits.size() == self.num_tokens(), "one logit a token");
                const uint32_t* words = words_of(mask, self);
                const nb::gil_scoped_release release;
                return self.sample(logits.data(), position, words);
            },
            "logits"_a, "position"_a, "mask"_a = nb::none(),
            "`mask`: a bit a token, lowest first, in words of 32; a token without its bit is not chosen.");
    m.def("sample", &sample, "samplers"_a, "logits"_a, "positions"_a,
          "masks"_a = std::vector<std::optional<MaskArray>>(),
          "The next token of each of several texts, from a row of logits each: (texts, num_tokens or more) f32.\n"
          "`masks`: none, or one of `Sampler.sample`, or None, a text.");
    m.def(
        "encode_rows",
        [](ThreadPool& pool, const std::string& format, const std::string& source, const ByteArray& data,
           int64_t columns, const std::string& quantizer_name, const std::optional<FloatArray>& importance) {
            const Quantizer quantizer = quantizer_named(quantizer_name);
            check(!importance || (int64_t)importance->size() == columns, "an importance a column");
            const Format target = format_named(format), from = format_named(source);
            const FormatInfo stored = format_info(from), encoded = format_info(target);
            const int64_t row_bytes = columns * stored.block_bytes / stored.columns;
            check(columns > 0 && row_bytes > 0, "rows have columns");
            const int64_t rows = (int64_t)data.size() / row_bytes;
            const size_t size = (size_t)(rows * (columns * encoded.block_bytes / encoded.columns));
            auto out = std::make_unique<uint8_t[]>(size);
            {
                const nb::gil_scoped_release release;
                encode_rows(pool, target, from, quantizer, importance ? importance->data() : nullptr, rows, columns,
                            data.data(), data.size(), out.get(), size);
            }
            return to_numpy(std::move(out), {size});
        },
        "pool"_a, "format"_a, "source"_a, "data"_a, "columns"_a, "quantizer"_a = "reference",
        "importance"_a = nb::none(),
        "Encode stored rows of floats as `format` is stored in files: (bytes,) u8. `importance`: (columns,) f32, what "
        "squared errors are weighted by.");
    m.def(
        "cache_types",
        [] {
            std::vector<std::string> names;
#define X(Type, name) names.emplace_back(#name);
            INFERNO_CACHE_TYPES(X)
#undef X
            return names;
        },
        "How keys and values can be kept.");
    m.def(
        "quantizers",
        [] {
            std::vector<std::string> names;
#define X(name) names.emplace_back(#name);
            INFERNO_QUANTIZERS(X)
#undef X
            return names;
        },
        "How floats can become blocks.");
    m.def(
        "top_logits",
        [](const FloatArray& logits, int64_t count) {
            std::vector<std::tuple<int32_t, float>> out;
            for (const auto& c : top_logits(logits.data(), (int64_t)logits.size(), count))
                out.emplace_back(c.token, c.logit);
            return out;
        },
        "logits"_a, "count"_a, "The `count` most likely (token, logit), best first.");

    nb::module_ testing = m.def_submodule("testing", "Single kernels, for tests; not a part of the interface.");
    bind_testing(testing);
}

}  // namespace inferno
