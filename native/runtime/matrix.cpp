#include "runtime/matrix.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "runtime/stored_row.h"

namespace inferno {
namespace {

template <class Target, class Source>
void pack_row(const StoredRow& source, int64_t blocks, int row, uint8_t* tile) {
    auto* out = (typename Target::TileBlock*)tile;
    if constexpr (std::is_same_v<Target, Source>) {
        for (int64_t b = 0; b < blocks; ++b) Target::pack_row(source.block<Source>(b), row, out[b]);
    } else if constexpr (Target::kEncodes) {
        source.decode<Target, Source>(blocks, [&](int64_t b, const float* values) {
            typename Target::Block block;
            Target::encode(values, block);
            Target::pack_row(block, row, out[b]);
        });
    }
}

using PackRow = void (*)(const StoredRow&, int64_t blocks, int row, uint8_t* tile);

PackRow choose(Format target, Format source) {
    return with_format(target, [&](auto to) {
        return with_format(source, [](auto from) -> PackRow { return pack_row<decltype(to), decltype(from)>; });
    });
}

// Halves (i, i + head_dim/2) from neighbours (2i, 2i + 1).
int64_t stored_row(int64_t row, int rope_head_dim) {
    if (rope_head_dim == 0) return row;
    const int64_t head = row / rope_head_dim * rope_head_dim, i = row % rope_head_dim, half = rope_head_dim / 2;
    return head + (i < half ? 2 * i : 2 * (i - half) + 1);
}

}  // namespace

Matrix::Matrix(Format format, int64_t rows, int64_t columns)
    : format(format),
      rows(rows),
      columns(columns),
      blocks(ceil_div(columns, format_info(format).columns)),
      tiles(ceil_div(rows, kTileRows)) {}

void Matrix::place(uint8_t* storage) {
    data = storage;
    // Only the last tile can have rows that no source fills.
    if (rows % kTileRows) std::memset(data + (tiles - 1) * tile_bytes(), 0, (size_t)tile_bytes());
}

void Matrix::pack(ThreadPool& pool, int64_t first_row, int64_t num_rows, Format source_format, const uint8_t* source,
                  size_t source_bytes, int rope_head_dim) {
    check(first_row >= 0 && num_rows > 0 && first_row + num_rows <= rows, "the rows fit the matrix");
    check(rope_head_dim >= 0 && (rope_head_dim == 0 || (rope_head_dim % 2 == 0 && num_rows % rope_head_dim == 0)),
          "rotated rows are whole heads");
    const FormatInfo stored = format_info(source_format), target = format_info(format);
    check(stored.activation == Activation::f32 || columns % stored.columns == 0, "a stored row is whole blocks");
    const int64_t row_bytes = columns * stored.block_bytes / stored.columns;
    check((int64_t)source_bytes == num_rows * row_bytes, "the stored bytes are the rows");
    check(source_format == format || target.encodes, "floats can be quantized to the matrix's format");
    const PackRow pack_row = choose(format, source_format);
    const int64_t first_tile = first_row / kTileRows, last_tile = ceil_div(first_row + num_rows, kTileRows);
    const int chunks = (int)std::min<int64_t>(last_tile - first_tile, 4096);
    pool.parallel_for(chunks, [&](int chunk) {
        const int64_t begin = (first_tile + (last_tile - first_tile) * chunk / chunks) * kTileRows;
        const int64_t end = (first_tile + (last_tile - first_tile) * (chunk + 1) / chunks) * kTileRows;
        for (int64_t row = std::max(begin, first_row); row < std::min(end, first_row + num_rows); ++row) {
            const StoredRow from{source + stored_row(row - first_row, rope_head_dim) * row_bytes, columns};
            pack_row(from, blocks, (int)(row % kTileRows), data + row / kTileRows * tile_bytes());
        }
    });
}

}  // namespace inferno
