// Compiled with AVX-512F, BW, VL and VNNI: nothing here may be called before the CPU is known to have them.
#include "kernels/isa/avx512_vnni.h"

#include "kernels/body/table.inl.h"

namespace inferno {

const KernelTable& kernels_avx512_vnni() {
    static constexpr KernelTable table = make_table<Avx512Vnni>();
    return table;
}

}  // namespace inferno
