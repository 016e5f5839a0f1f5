// Compiled with FEAT_DotProd and FEAT_I8MM: nothing here may be called before the CPU is known to have them.
#include "kernels/isa/neon_i8mm.h"

#include "kernels/body/table.inl.h"

namespace inferno {

const KernelTable& kernels_neon_i8mm() {
    static constexpr KernelTable table = make_table<NeonI8mm>();
    return table;
}

}  // namespace inferno
