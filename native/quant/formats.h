// The list of weight formats. Tables, bindings, tests and dispatch are made from it: a new format is
// its header, included here, and one line.
#pragma once
#include "quant/floats.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

#define INFERNO_FORMATS(X) \
    X(F32, f32)            \
    X(F16, f16)            \
    X(BF16, bf16)          \
    X(Q8_0, q8_0)          \
    X(Q4_0, q4_0)          \
    X(Q4_1, q4_1)          \
    X(Q5_0, q5_0)          \
    X(Q5_1, q5_1)          \
    X(Q2_K, q2_k)          \
    X(Q3_K, q3_k)          \
    X(Q4_K, q4_k)          \
    X(Q5_K, q5_k)          \
    X(Q6_K, q6_k)          \
    X(IQ4_NL, iq4_nl)      \
    X(IQ4_XS, iq4_xs)      \
    X(MXFP4, mxfp4)

namespace inferno {

enum class Format : uint8_t {
#define X(Type, name) name,
    INFERNO_FORMATS(X)
#undef X
};

#define X(Type, name) +1
constexpr int kNumFormats = 0 INFERNO_FORMATS(X);
#undef X

// body(Type{}), Type being the type of `format`. Not for code of one instruction set.
template <class Body>
auto with_format(Format format, const Body& body) -> decltype(body(F32{})) {
    switch (format) {
#define X(Type, name) \
    case Format::name: return body(Type{});
        INFERNO_FORMATS(X)
#undef X
    }
    return {};
}

// Facts about a format, for code that is not a kernel.
struct FormatInfo {
    const char* name;
    Activation activation;
    int columns;               // of a block
    int64_t block_bytes;       // one stored block
    int64_t tile_block_bytes;  // 16 rows of it, packed
    bool encodes;              // floats can be quantized to it
    bool expands;              // its blocks are taken apart for many tokens
};

INFERNO_INLINE FormatInfo format_info(Format format) {
    switch (format) {
#define X(Type, name)                                                                                            \
    case Format::name:                                                                                           \
        return {Type::kName,    Type::kActivation, Type::kColumns, sizeof(Type::Block), sizeof(Type::TileBlock), \
                Type::kEncodes, SuperBlock<Type>};
        INFERNO_FORMATS(X)
#undef X
    }
    return {};
}

}  // namespace inferno
