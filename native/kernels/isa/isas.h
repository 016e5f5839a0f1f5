// The list of instruction sets that a build for some machine has beside `scalar`, best first. X(isa)
#pragma once

#define INFERNO_X86_ISAS(X) X(avx512_vnni) X(avx_vnni) X(avx2)
#define INFERNO_ARM_ISAS(X) X(neon_i8mm) X(neon_dotprod) X(neon)

#if defined(__x86_64__)
#define INFERNO_ISAS(X) INFERNO_X86_ISAS(X)
#elif defined(__aarch64__)
#define INFERNO_ISAS(X) INFERNO_ARM_ISAS(X)
#else
#define INFERNO_ISAS(X)
#endif
