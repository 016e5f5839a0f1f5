// A row of weights as a file stores it, read as blocks of whatever it is to become.
#pragma once
#include <algorithm>
#include <cstring>

#include "quant/formats.h"

namespace inferno {

struct StoredRow {
    const uint8_t* bytes;
    int64_t columns;

    template <class Source>
    typename Source::Block block(int64_t b) const {
        typename Source::Block out{};
        // Float rows need not end at a block: the rest of the last one is zero. Quantized rows do.
        const int64_t whole = sizeof(typename Source::Block);
        const int64_t size = columns * whole / Source::kColumns;
        std::memcpy(&out, bytes + b * whole, (size_t)std::clamp<int64_t>(size - b * whole, 0, whole));
        return out;
    }

    // Hand the values of `blocks` blocks of Target to take(b, values), zeros after the last column.
    template <class Target, class Source, class Take>
    void decode(int64_t blocks, const Take& take) const {
        // As many columns at a time as both are whole blocks of.
        constexpr int kStep = std::max(Source::kColumns, Target::kColumns);
        static_assert(kStep % Source::kColumns == 0 && kStep % Target::kColumns == 0);
        for (int64_t column = 0; column < blocks * Target::kColumns; column += kStep) {
            float values[kStep];
            for (int i = 0; i < kStep; i += Source::kColumns)
                Source::decode(block<Source>((column + i) / Source::kColumns), values + i);
            for (int i = 0; i < kStep; i += Target::kColumns) take((column + i) / Target::kColumns, values + i);
        }
    }
};

}  // namespace inferno
