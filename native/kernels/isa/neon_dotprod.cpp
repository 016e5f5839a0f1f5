// Compiled with FEAT_DotProd: nothing here may be called before the CPU is known to have it.
#include "kernels/isa/neon_dotprod.h"

#include "kernels/body/table.inl.h"

namespace inferno {

const KernelTable& kernels_neon_dotprod() {
    static constexpr KernelTable table = make_table<NeonDotprod>();
    return table;
}

}  // namespace inferno
