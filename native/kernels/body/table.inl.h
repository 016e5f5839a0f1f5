// Every kernel body, instantiated for one ISA.
#pragma once
#include "kernels/body/attention.inl.h"
#include "kernels/body/matmul.inl.h"
#include "kernels/body/pack.inl.h"
#include "kernels/body/probe.inl.h"
#include "kernels/body/rope.inl.h"
#include "kernels/body/route.inl.h"
#include "kernels/body/softcap.inl.h"

namespace inferno {

template <class Isa>
constexpr KernelTable make_table() {
    KernelTable table{};
    table.name = Isa::kName;
    table.tokens = Isa::kTokens;
#define X(Type, format)                                    \
    table.matmul[(int)Format::format] = matmul<Isa, Type>; \
    table.unpack_row[(int)Format::format] = unpack_row<Isa, Type>;
    INFERNO_FORMATS(X)
#undef X
    table.pack = pack<Isa>;
    table.rms_norm = rms_norm<Isa>;
    table.rms_norm_rows = rms_norm_rows<Isa>;
    table.silu_mul = silu_mul<Isa>;
    table.gelu_mul = gelu_mul<Isa>;
    table.clamped_swiglu = clamped_swiglu<Isa>;
    table.softcap = softcap<Isa>;
    table.route = route<Isa>;
    table.combine = combine<Isa>;
    table.rope = rope<Isa>;
#define X(Type, name)                                           \
    table.store_kv[(int)CacheType::name] = store_kv<Isa, Type>; \
    table.attention[(int)CacheType::name] = attention<Isa, Type>;
    INFERNO_CACHE_TYPES(X)
#undef X
    table.merge_states = merge_states<Isa>;
    table.finish_state = finish_state<Isa>;
    table.exp = exp_row<Isa>;
    table.probe_dot = probe_dot<Isa>;
    table.probe_fma = probe_fma<Isa>;
    table.probe_read = probe_read<Isa>;
    return table;
}

}  // namespace inferno
