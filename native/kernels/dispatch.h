// Which kernel table runs: chosen once, when a model is loaded.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/table.h"

namespace inferno {

// Names of the kernel tables this build has and this CPU can run, best first.
std::vector<std::string> supported_isas();

// The table named, or the best for "". Throws `invalid-option`, listing what would do.
const KernelTable& choose_kernels(std::string_view isa);

}  // namespace inferno
