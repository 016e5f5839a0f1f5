// The specification: every other table equals this one, bit for bit. Runs on any CPU.
#include "kernels/isa/scalar.h"

#include "kernels/body/table.inl.h"

namespace inferno {

const KernelTable& kernels_scalar() {
    static constexpr KernelTable table = make_table<Scalar>();
    return table;
}

}  // namespace inferno
