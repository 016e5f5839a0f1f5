"""What a CPU can run, from made-up answers of CPUs: hidden, halved and forgotten features."""

from __future__ import annotations

import pytest

from inferno import InfernoError, _native

testing = _native.testing

# CPUID and XGETBV, as Intel's and AMD's manuals number the bits.
FMA, OSXSAVE, AVX, F16C = 1 << 12, 1 << 27, 1 << 28, 1 << 29  # of leaf 1's ecx
AVX2, AVX512F, AVX512BW, AVX512VL = 1 << 5, 1 << 16, 1 << 30, 1 << 31  # of leaf 7's ebx
AVX512_VNNI = 1 << 11  # of leaf 7's ecx
AVX_VNNI = 1 << 4  # of leaf 7.1's eax
YMM, ZMM = 0b110, 0b1110_0110  # of the registers that are saved

HASWELL = {
    "highest_leaf": 13,
    "leaf1_ecx": FMA | OSXSAVE | AVX | F16C,
    "leaf7_ebx": AVX2,
    "saved_registers": YMM | 1,
}
ALDER_LAKE = {**HASWELL, "highest_leaf": 32, "leaf7_1_eax": AVX_VNNI}
ICE_LAKE = {
    **HASWELL,
    "leaf7_ebx": AVX2 | AVX512F | AVX512BW | AVX512VL,
    "leaf7_ecx": AVX512_VNNI,
    "saved_registers": ZMM | 1,
}
SAPPHIRE_RAPIDS = {**ICE_LAKE, "leaf7_1_eax": AVX_VNNI}

# HWCAP and HWCAP2 of Linux.
ASIMD, DOT_PRODUCT, I8MM = 1 << 1, 1 << 20, 1 << 13


def without(cpu: dict[str, int], word: str, bits: int) -> dict[str, int]:
    return {**cpu, word: cpu[word] & ~bits}


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        (HASWELL, ["avx2"]),
        (ALDER_LAKE, ["avx2", "avx_vnni"]),
        (ICE_LAKE, ["avx2", "avx512_vnni"]),
        (SAPPHIRE_RAPIDS, ["avx2", "avx_vnni", "avx512_vnni"]),
        ({}, []),
        ({"highest_leaf": 1}, []),
        # Part of a set is none of it.
        (without(HASWELL, "leaf1_ecx", FMA), []),
        (without(HASWELL, "leaf1_ecx", F16C), []),
        (without(HASWELL, "leaf7_ebx", AVX2), []),
        (without(SAPPHIRE_RAPIDS, "leaf1_ecx", FMA), []),
        (without(ICE_LAKE, "leaf7_ebx", AVX512BW), ["avx2"]),
        (without(ICE_LAKE, "leaf7_ebx", AVX512VL), ["avx2"]),
        (without(ICE_LAKE, "leaf7_ecx", AVX512_VNNI), ["avx2"]),
        # An operating system that saves no ymm or no zmm registers, or says nothing of them.
        (without(SAPPHIRE_RAPIDS, "saved_registers", 0b100), []),
        (without(SAPPHIRE_RAPIDS, "saved_registers", 0b1110_0000), ["avx2", "avx_vnni"]),
        (without(SAPPHIRE_RAPIDS, "saved_registers", 0b1000_0000), ["avx2", "avx_vnni"]),
        (without(SAPPHIRE_RAPIDS, "leaf1_ecx", OSXSAVE), []),
        # A leaf that is not there may answer with anything.
        ({**HASWELL, "highest_leaf": 6}, []),
    ],
)
def test_an_x86_runs_what_its_words_allow(cpu: dict[str, int], expected: list[str]) -> None:
    found = testing.x86_features(**{**dict.fromkeys(testing.X86_WORDS, 0), **cpu})
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("hwcap", "hwcap2", "expected"),
    [
        (ASIMD, 0, ["neon"]),
        (ASIMD | DOT_PRODUCT, 0, ["neon", "neon_dotprod"]),
        (ASIMD | DOT_PRODUCT, I8MM, ["neon", "neon_dotprod", "neon_i8mm"]),
        # Cores that differ: Linux tells what all of them have.
        (ASIMD, I8MM, ["neon"]),
        (0, 0, []),
        (DOT_PRODUCT, I8MM, []),
    ],
)
def test_an_arm_runs_what_its_words_allow(hwcap: int, hwcap2: int, expected: list[str]) -> None:
    assert sorted(testing.arm_features(hwcap, hwcap2)) == expected


@pytest.mark.parametrize("name", ["avx10", "AVX2", "avx2 ", "sse"])
def test_a_name_that_does_not_exist_lists_what_would_do(name: str) -> None:
    with pytest.raises(InfernoError) as caught:
        _native.choose_isa(name)
    for isa in _native.isas():
        assert isa in str(caught.value)
