// Floats as files store them, to blocks as files store them: what `inferno pull --gguf` writes.
#pragma once
#include "base/thread_pool.h"
#include "quant/formats.h"

namespace inferno {

// Encode `rows` stored rows of `columns` floats into `out`, row by row on the pool. The arithmetic is that of
// Matrix::pack, so packing what was encoded gives the same bits as packing the floats.
void encode_rows(ThreadPool& pool, Format target, Format source, int64_t rows, int64_t columns, const uint8_t* in,
                 size_t in_bytes, uint8_t* out, size_t out_bytes);

}  // namespace inferno
