// A plan and its packed weights as bytes, which a machine without Python can run. For tests: the layout is that of
// this build's structs on a little-endian machine of 64 bits, and nothing is checked but what Model checks.
#pragma once
#include <memory>
#include <type_traits>

#include "runtime/model.h"

namespace inferno {

// One walk over a plan for both directions: `io` reads or writes what it is handed.
template <class Io>
void walk(Io& io, std::string& text) {
    io.list(text, [&](char& c) { io.value(c); });
}
template <class Io>
void walk(Io& io, std::vector<float>& values) {
    io.list(values, [&](float& x) { io.value(x); });
}
template <class Io>
void walk(Io& io, Plan& plan) {
    io.value(plan.vocab_size), io.value(plan.num_layers), io.value(plan.kv_heads), io.value(plan.head_dim);
    io.value(plan.experts), io.value(plan.experts_per_token);
    io.list(plan.matrices,
            [&](MatrixSpec& m) { walk(io, m.name), io.value(m.format), io.value(m.rows), io.value(m.columns); });
    io.list(plan.vectors, [&](VectorSpec& v) { walk(io, v.name), walk(io, v.values); });
    io.list(plan.rows, [&](RowsSpec& r) { io.value(r); });
    io.list(plan.packs, [&](PackSpec& p) { io.value(p); });
    io.list(plan.ropes, [&](RopeSpec& r) { walk(io, r.inverse_frequencies), io.value(r.factor); });
    io.list(plan.ops, [&](Op& op) { io.value(op); });
}

struct Freezer {
    std::string bytes;
    template <class T>
    void value(const T& x) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes.append((const char*)&x, sizeof x);
    }
    template <class List>
    void list(List& items, const auto& each) {
        value((uint64_t)items.size());
        for (auto& item : items) each(item);
    }
};

struct Thawer {
    const char* at;
    const char* end;
    void take(void* to, size_t size) {
        check((size_t)(end - at) >= size, "a frozen model is whole");
        std::memcpy(to, at, size);
        at += size;
    }
    template <class T>
    void value(T& x) {
        static_assert(std::is_trivially_copyable_v<T>);
        take(&x, sizeof x);
    }
    template <class List>
    void list(List& items, const auto& each) {
        uint64_t size = 0;
        value(size);
        check(size <= (uint64_t)(end - at), "a frozen model is whole");
        items.resize((size_t)size);
        for (auto& item : items) each(item);
    }
};

inline std::string freeze(const Model& model) {
    Freezer io;
    Plan plan = model.plan();
    walk(io, plan);
    for (size_t i = 0; i < plan.matrices.size(); ++i) {
        const Matrix& matrix = model.matrix((int)i);
        io.bytes.append((const char*)matrix.data, (size_t)matrix.size());
    }
    return io.bytes;
}

inline std::shared_ptr<Model> thaw(const std::string& bytes) {
    Thawer io{bytes.data(), bytes.data() + bytes.size()};
    Plan plan;
    walk(io, plan);
    const size_t matrices = plan.matrices.size();
    auto model = std::make_shared<Model>(std::move(plan));
    for (size_t i = 0; i < matrices; ++i) {
        Matrix& matrix = model->matrix((int)i);
        io.take(matrix.data, (size_t)matrix.size());
    }
    return model;
}

}  // namespace inferno
