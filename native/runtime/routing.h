// What the last `route` of a pass chose.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace inferno {

struct Routing {
    std::vector<int32_t> experts;  // (rows, per_row), ascending for each row
    std::vector<float> weights;    // likewise
    std::vector<int> places;       // likewise: the assignment that it is
    std::vector<int> rows;         // (assignments) the row of each, those of an expert side by side
    std::vector<int> first;        // (experts + 1) the first assignment of each expert
    std::vector<int> busy;         // the experts that have one

    void resize(size_t assignments);
    // Fill `places`, `rows`, `first` and `busy` from `experts`.
    void group_by_expert(int num_experts, int per_row);
};

}  // namespace inferno
