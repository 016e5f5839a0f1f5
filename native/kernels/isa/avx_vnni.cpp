// Compiled with AVX2, FMA, F16C and AVX-VNNI: nothing here may be called before the CPU is known to have them.
#include "kernels/isa/avx_vnni.h"

#include "kernels/body/table.inl.h"

namespace inferno {

const KernelTable& kernels_avx_vnni() {
    static constexpr KernelTable table = make_table<AvxVnni>();
    return table;
}

}  // namespace inferno
