// The list of weight formats. Tables, bindings, tests and dispatch are made from it: a new format is
// its header, included here, and one line.
#pragma once
#include "quant/floats.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q8_0.h"

#define INFERNO_FORMATS(X) \
    X(F32, f32)            \
    X(F16, f16)            \
    X(BF16, bf16)          \
    X(Q8_0, q8_0)          \
    X(Q4_0, q4_0)          \
    X(Q4_1, q4_1)

namespace inferno {

enum class Format : uint8_t {
#define X(Type, name) name,
    INFERNO_FORMATS(X)
#undef X
};

#define X(Type, name) +1
constexpr int kNumFormats = 0 INFERNO_FORMATS(X);
#undef X

// Facts about a format, for code that is not a kernel.
struct FormatInfo {
    const char* name;
    Activation activation;
    int columns;               // of a block
    int64_t block_bytes;       // one stored block
    int64_t tile_block_bytes;  // 16 rows of it, packed
    bool encodes;              // floats can be quantized to it
};

INFERNO_INLINE FormatInfo format_info(Format format) {
    switch (format) {
#define X(Type, name)                                                         \
    case Format::name:                                                        \
        return {Type::kName,         Type::kActivation,       Type::kColumns, \
                sizeof(Type::Block), sizeof(Type::TileBlock), Type::kEncodes};
        INFERNO_FORMATS(X)
#undef X
    }
    return {};
}

}  // namespace inferno
