"""Every kernel x format x tile tail x extreme: each table gives the bytes that `scalar` gives.

The cases are made and hashed in C++ (native/cases), so that machines without Python can run them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from case_programs import Cases, arm_program, cases_here, program, windows_program
from inferno import _native

# On the least CPU that has it, as far as qemu tells: what is above is an illegal instruction there.
ARM_CPUS = {"neon_i8mm": "max", "neon_dotprod": "neoverse-n1", "neon": "cortex-a72"}


@pytest.fixture(scope="module")
def specification() -> Cases:
    return cases_here("scalar")


@pytest.fixture
def compare(specification: Cases, record_property: Any) -> Callable[[Callable[[], Cases]], None]:
    """Return what compares a table's answers, and tells how many there were."""

    def compared(answers: Callable[[], Cases]) -> None:
        began = time.perf_counter()
        found = answers()
        seconds = time.perf_counter() - began
        assert [case for case in specification if found.get(case) != specification[case]] == []
        count = sum(count for count, _ in found.values())
        record_property("cases", count)
        print(f"{count:,} cases equal to scalar's, in {seconds:.1f} s")

    return compared


def test_the_cases_cover_every_format_row_and_token(specification: Cases) -> None:
    for name, *_ in _native.formats():
        of_format = [case for case in specification if case.startswith(f"matmul {name} ")]
        assert len(of_format) >= 4  # widths, each with ordinary and extreme inputs
        for case in of_format:
            # Rows x tokens, and rows unpacked; blocks of 256 are taken apart for many tokens.
            expanded = 4 * 2 if name.endswith("_k") else 0
            assert specification[case][0] == 17 * 17 + expanded + 17
    assert {f"attention {name}" for name in _native.cache_types()} <= specification.keys()
    hashes = [hash for _, hash in specification.values()]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("isa", [isa for isa in _native.isas() if isa != "scalar"])
def test_a_table_equals_the_specification(
    isa: str, compare: Callable[[Callable[[], Cases]], None]
) -> None:
    compare(lambda: cases_here(isa))


@pytest.mark.parametrize("isa", ["avx2", "avx_vnni", "avx512_vnni"])
def test_a_table_of_emulated_intrinsics_equals_the_specification(
    isa: str, compare: Callable[[Callable[[], Cases]], None]
) -> None:
    emulated = program("inferno_cases_emulated")
    compare(lambda: emulated.cases(isa))


def test_avx_vnni_in_the_encoding_of_avx512_equals_the_specification(
    compare: Callable[[Callable[[], Cases]], None],
) -> None:
    evex = program("inferno_cases_evex")
    compare(lambda: evex.cases("avx_vnni"))


@pytest.mark.parametrize(("isa", "cpu"), ARM_CPUS.items())
def test_a_table_of_an_emulated_arm_equals_the_specification_of_x86(
    isa: str, cpu: str, compare: Callable[[Callable[[], Cases]], None]
) -> None:
    arm = arm_program(cpu)
    compare(lambda: arm.cases(isa))


@pytest.mark.parametrize(("isa", "cpu"), ARM_CPUS.items())
def test_an_arm_cpu_is_given_what_it_has(isa: str, cpu: str) -> None:
    best_first = [*ARM_CPUS, "scalar"]
    assert arm_program(cpu).run("isas").decode().split() == best_first[best_first.index(isa) :]


@pytest.mark.parametrize("isa", _native.isas())
def test_a_table_on_windows_equals_the_specification_of_linux(
    isa: str, compare: Callable[[Callable[[], Cases]], None]
) -> None:
    windows = windows_program()
    compare(lambda: windows.cases(isa))


def test_windows_gives_a_cpu_what_linux_gives_it() -> None:
    assert windows_program().run("isas").decode().split() == _native.isas()
