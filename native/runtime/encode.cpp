#include "runtime/encode.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "runtime/stored_row.h"

namespace inferno {
namespace {

using EncodeRow = void (*)(const StoredRow& row, Quantizer quantizer, const float* importance, uint8_t* out);

template <class Target>
void encode_block(const float* values, Quantizer quantizer, const float* importance, typename Target::Block& out) {
    if constexpr (requires { Target::encode_naively(values, out); })
        if (quantizer == Quantizer::naive) return Target::encode_naively(values, out);
    if constexpr (requires { Target::fit(values, importance, out); })
        if (quantizer == Quantizer::least_squares) return Target::fit(values, importance, out);
    Target::encode(values, out);
}

template <class Target, class Source>
void encode_row(const StoredRow& row, Quantizer quantizer, const float* importance, uint8_t* out) {
    const int64_t whole = sizeof(typename Target::Block), size = row.columns * whole / Target::kColumns;
    row.decode<Target, Source>(ceil_div(row.columns, Target::kColumns), [&](int64_t b, const float* values) {
        typename Target::Block block;
        encode_block<Target>(values, quantizer, importance ? importance + b * Target::kColumns : nullptr, block);
        // Rows of floats need not end at a block.
        std::memcpy(out + b * whole, &block, (size_t)std::min(whole, size - b * whole));
    });
}

EncodeRow choose(Format target, Format source) {
    return with_format(target, [&](auto to) {
        return with_format(source, [&](auto from) -> EncodeRow {
            using Target = decltype(to);
            using Source = decltype(from);
            if constexpr (Target::kEncodes && Source::kActivation == Activation::f32)
                return encode_row<Target, Source>;
            else
                return nullptr;
        });
    });
}

}  // namespace

void encode_rows(ThreadPool& pool, Format target, Format source, Quantizer quantizer, const float* importance,
                 int64_t rows, int64_t columns, const uint8_t* in, size_t in_bytes, uint8_t* out, size_t out_bytes) {
    const EncodeRow encode = choose(target, source);
    check(encode != nullptr, "floats are encoded, to a format that encodes");
    const FormatInfo from = format_info(source), to = format_info(target);
    check(rows > 0 && columns > 0, "there are rows");
    check(to.activation == Activation::f32 || columns % to.columns == 0, "an encoded row is whole blocks");
    const int64_t in_row = columns * from.block_bytes / from.columns;
    const int64_t out_row = columns * to.block_bytes / to.columns;
    check((int64_t)in_bytes == rows * in_row && (int64_t)out_bytes == rows * out_row, "the bytes are the rows");
    const int chunks = (int)std::min<int64_t>(rows, 4096);
    pool.parallel_for(chunks, [&](int chunk) {
        for (int64_t row = rows * chunk / chunks; row < rows * (chunk + 1) / chunks; ++row)
            encode({in + row * in_row, columns}, quantizer, importance, out + row * out_row);
    });
}

}  // namespace inferno
