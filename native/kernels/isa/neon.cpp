// Runs on every 64-bit Arm.
#include "kernels/isa/neon.h"

#include "kernels/body/table.inl.h"

namespace inferno {

const KernelTable& kernels_neon() {
    static constexpr KernelTable table = make_table<Neon>();
    return table;
}

}  // namespace inferno
