"""One arithmetic, and no function of one instruction set in the place of another's.

Every kernel source is compiled with the flags of its instruction set. A function that two sources
share is emitted in both objects as a weak symbol, and the linker keeps either: an older CPU may not
be able to run that one. So a weak symbol of such an object must name the object's set.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import engines
from disassembly import OBJDUMP
from inferno import _native
from reference import quantization

testing = _native.testing

ROOT = Path(__file__).parents[2]
OBJECTS = sorted(
    path
    for path in ROOT.glob("build/cp3*/**/isa/*.o")
    if f"inferno_{path.name.split('.')[0]}.dir" in path.parts  # else it is of tests alone
)
# What is compiled for any CPU: base, runtime, bindings.
OTHERS = sorted(
    path for name in ("core", "_native") for path in ROOT.glob(f"build/cp3*/**/*{name}.dir/**/*.o")
)
NM = shutil.which("nm")
WEAK = "WVuvw"  # as nm marks them: weak or unique, functions or data

needs_objects = pytest.mark.skipif(not (OBJECTS and NM), reason="needs nm and a build directory")


def type_of(path: Path) -> str:
    """Return the type that an object's kernels name: struct AvxVnni lives in isa/avx_vnni.h."""
    isa = path.name.split(".")[0]
    return "inferno::" + "".join(part.capitalize() for part in isa.split("_"))


def symbols(path: Path) -> list[tuple[str, str]]:
    """List (mark, demangled name) of an object's symbols."""
    assert NM
    text = subprocess.run([NM, "-C", str(path)], check=True, capture_output=True, text=True).stdout
    return [(mark, name) for mark, name in (line[17:].split(" ", 1) for line in text.splitlines())]


@needs_objects
@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem.split(".")[0])
def test_every_weak_symbol_names_its_isa(path: Path) -> None:
    type_name = type_of(path)
    weak = [name for mark, name in symbols(path) if mark in WEAK]
    assert weak, "kernels are templates, so there are some"
    assert [name for name in weak if type_name not in name] == []


@needs_objects
def test_no_object_could_take_a_weak_symbol_of_an_isa() -> None:
    """Neither another instruction set's nor one of the rest of the library."""
    taken: dict[str, str] = {}
    for path in [*OBJECTS, *OTHERS]:
        weak = {name for mark, name in symbols(path) if mark in "WVu"}  # defined here
        if path in OBJECTS:
            assert [name for name in weak if name in taken] == [], path.name
            taken.update(dict.fromkeys(weak, path.name))
        else:
            assert [name for name in weak if name in taken] == [], path.name


@needs_objects
@pytest.mark.skipif(not OBJDUMP, reason="needs objdump or llvm-objdump")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86")
def test_the_rest_of_the_library_runs_on_any_x86() -> None:
    """No instruction of AVX or later, which all begin with a `v`, beyond the objects of sets."""
    assert OBJDUMP
    scalar = [path for path in OBJECTS if path.name.startswith("scalar.")]
    assert OTHERS and scalar
    for path in [*OTHERS, *scalar]:
        command = [OBJDUMP, "-d", "--no-show-raw-insn", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = re.findall(r"^\s*[0-9a-f]+:\s+(v\w+ .*|.*%[yz]mm\d.*)$", text, re.M)
        assert found == [], path.name


@needs_objects
def test_no_number_comes_out_of_the_c_library() -> None:
    """Its exponentials and logarithms differ from system to system, and from CPU to CPU."""
    functions = "exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|erf|cbrt|hypot"
    inexact = re.compile(rf"({functions})[fl]?(@.*)?")
    assert inexact.fullmatch("logf") and not inexact.fullmatch("fmaf")  # which is exact
    for path in [*OBJECTS, *OTHERS]:
        wanted = [name for mark, name in symbols(path) if mark == "U"]
        assert [name for name in wanted if inexact.fullmatch(name)] == [], path.name


@needs_objects
@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem.split(".")[0])
def test_an_isa_exports_its_table_alone(path: Path) -> None:
    isa = path.name.split(".")[0]
    found = symbols(path)
    assert [name for mark, name in found if mark == "T"] == [f"inferno::kernels_{isa}()"]
    # No constructor of a global: it would run at import, whatever the CPU.
    assert not [name for _, name in found if "_GLOBAL__sub_I" in name or "init_array" in name]


def test_isa_tables_agree() -> None:
    """Give every kernel of every table one input of some size: all answers are the same bytes."""
    rng = np.random.default_rng(0)
    pool = _native.ThreadPool(1)
    x = rng.standard_normal((6, 512)).astype(np.float32) * np.float32(20)
    other = rng.standard_normal((6, 512)).astype(np.float32)
    weights = rng.standard_normal((50, 512)).astype(np.float32)
    q = rng.standard_normal((6, 4, 40)).astype(np.float32)
    k, v = rng.standard_normal((2, 600, 2, 40)).astype(np.float32)

    def answers(isa: str) -> dict[str, bytes]:
        found = {}
        for name, *_ in _native.formats():
            stored = (pool, name, name, quantization.quantize(name, weights), 50)
            found[f"matmul {name}"] = testing.matmul(isa, *stored, x).tobytes()
            found[f"unpack {name}"] = testing.unpack(isa, *stored, 512).tobytes()
        for kind, *_ in _native.activations():
            # One token at a time: tables may differ in the width of their tiles.
            for op in ("pack", "rms_norm", "silu_mul"):
                rows = [
                    testing.pack(isa, op, kind, row[None], second[None])
                    for row, second in zip(x, other, strict=True)
                ]
                found[f"{op} {kind}"] = b"".join(rows)
        frequencies = (10_000.0 ** (-np.arange(20) / 20)).astype(np.float32)
        found["rope"] = testing.rope(isa, x[:, :160].copy(), 40, 1234, frequencies).tobytes()
        found["exp"] = testing.exp(isa, x.reshape(-1)).tobytes()
        for cache in _native.cache_types():
            for splits_apart in (False, True):
                scores = testing.attention(isa, cache, q, k, v, 0.3, splits_apart=splits_apart)
                found[f"attention {cache} {splits_apart}"] = scores.tobytes()
        return found

    isas = _native.isas()
    assert "scalar" in isas
    specification = answers("scalar")
    for isa in isas:
        found = answers(isa)
        assert [name for name in specification if found[name] != specification[name]] == [], isa


@needs_objects
@pytest.mark.skipif(not OBJDUMP, reason="needs objdump or llvm-objdump")
@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem.split(".")[0])
def test_a_table_points_to_kernels_of_its_isa_alone(path: Path) -> None:
    """Its name says what runs: the pointers beside it lead to functions of that instruction set."""
    assert OBJDUMP
    command = [OBJDUMP, "-r", "-C", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # The table is constant data with addresses in it; functions are known by their arguments.
    table = re.search(r"FOR \[\.data\.rel\.ro[\w.]*\]:\n(.*?)\n\n", text, re.DOTALL)
    assert table
    kernels = [line.split(maxsplit=2)[2] for line in table[1].splitlines() if "(" in line]
    type_name = type_of(path)
    assert [name for name in kernels if f"<{type_name}" not in name] == []
    assert sum("inferno::matmul<" in name for name in kernels) == len(_native.formats())
    assert sum("inferno::attention<" in name for name in kernels) == len(_native.cache_types())


@pytest.mark.parametrize("isa", _native.isas())
def test_the_isa_asked_for_is_the_one_that_runs(
    isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor takes its name, its tiles and every kernel from one table, and says which."""
    path = engines.tiny_gguf(tmp_path / "m.gguf")
    by_argument = engines.load(path, isa=isa)
    monkeypatch.setenv("INFERNO_ISA", isa)
    by_environment = engines.load(path)
    for engine in (by_argument, by_environment):
        assert np.isfinite(engine.logits([1, 2, 3])).all()
        assert engine._executor.isa == engine.isa == isa
    for other in _native.isas():  # what is asked for in words goes before the environment
        assert engines.load(path, isa=other)._executor.isa == other
    assert _native.choose_isa(isa) == isa
    assert _native.choose_isa("") == _native.isas()[0]
