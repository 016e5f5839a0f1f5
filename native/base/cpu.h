// What this CPU can run, and the choice among it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/table.h"

namespace inferno {

// Names of the kernel tables this build has and this CPU (and its operating system) can run, best first.
std::vector<std::string> supported_isas();

// The table named, or the best for "". Throws `invalid-option`, listing what would do.
const KernelTable& choose_kernels(std::string_view isa);

}  // namespace inferno
