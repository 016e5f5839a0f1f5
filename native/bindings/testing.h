#pragma once
#include <nanobind/nanobind.h>

namespace inferno {

// Every kernel table, function by function, for tests.
void bind_testing(nanobind::module_& m);

}  // namespace inferno
