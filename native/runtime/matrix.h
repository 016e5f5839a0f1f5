// A weight matrix in the tile layout that every kernel reads: the only copy of the weights.
#pragma once
#include "base/thread_pool.h"
#include "quant/formats.h"

namespace inferno {

struct Matrix {
    Matrix(Format format, int64_t rows, int64_t columns);

    // Live in `storage`, size() bytes aligned to 64: the rows beyond the last become zero.
    void place(uint8_t* storage);

    // Pack stored rows from row `first_row` on, converting if the formats differ. `rope_head_dim` > 0: the
    // stored rows pair neighbours within each head of that many; put them in halves. Tile by tile on the
    // pool; the bytes of `source` must be num_rows x columns exactly.
    void pack(ThreadPool& pool, int64_t first_row, int64_t num_rows, Format source_format, const uint8_t* source,
              size_t source_bytes, int rope_head_dim);

    int64_t size() const { return tiles * tile_bytes(); }
    int64_t tile_bytes() const { return blocks * format_info(format).tile_block_bytes; }

    Format format;
    int64_t rows, columns, blocks, tiles;  // blocks of the format's columns, tiles of 16 rows
    uint8_t* data = nullptr;               // (tiles, blocks) tile blocks; not owned
};

}  // namespace inferno
