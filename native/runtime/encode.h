// Floats as files store them, to blocks as files store them: what is written when a model is quantized to a file.
#pragma once
#include "base/thread_pool.h"
#include "quant/formats.h"

namespace inferno {

// How floats become blocks. X(name)
#define INFERNO_QUANTIZERS(X)                                                                 \
    X(reference)     /* ggml's rule for the format; the arithmetic of Matrix::pack         */ \
    X(naive)         /* the largest magnitude over half the codes, for comparison          */ \
    X(least_squares) /* quant/least_squares.h, by the importance of columns if it is known */

enum class Quantizer : uint8_t {
#define X(name) name,
    INFERNO_QUANTIZERS(X)
#undef X
};

// Encode `rows` stored rows of `columns` floats into `out`, row by row on the pool. By `reference`, packing what
// was encoded gives the same bits as packing the floats. Formats that a quantizer says nothing about have
// `reference` alone. `importance`: (columns,) weights of squared errors, or null.
void encode_rows(ThreadPool& pool, Format target, Format source, Quantizer quantizer, const float* importance,
                 int64_t rows, int64_t columns, const uint8_t* in, size_t in_bytes, uint8_t* out, size_t out_bytes);

}  // namespace inferno
