// Compiled with -mavx2 -mfma -mf16c: nothing here may be called before the CPU is known to have them.
#include "kernels/isa/avx2.h"

#include "kernels/body/table.inl.h"

namespace inferno {

const KernelTable& kernels_avx2() {
    static constexpr KernelTable table = make_table<Avx2>();
    return table;
}

}  // namespace inferno
