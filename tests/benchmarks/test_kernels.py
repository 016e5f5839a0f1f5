"""The harness of the kernels: everything that exists is timed, and figures are what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from inferno import _native
from inferno.bench.limits import Limits

HARNESS = Path(__file__).parents[2] / "benchmarks/kernels.py"


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The harness with little to do, on a machine of round figures."""
    specification = importlib.util.spec_from_file_location("kernels", HARNESS)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "kernels", module)  # dataclasses look their module up
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "probe", lambda *_: Limits(1e9, 1e10, 1e10))
    for name, value in {"TOKENS": (1, 5), "DEPTHS": (70,), "COLUMNS": 64}.items():
        monkeypatch.setattr(module, name, value)
    for name in ("PANEL_BYTES", "STREAM_BYTES"):
        monkeypatch.setattr(module, name, 1 << 14)
    return module


def test_every_format_and_instruction_set_is_timed(
    kernels: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels.main(["--threads", "2", "--seconds", "0.0001", "--runs", "1", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["command"].startswith("python benchmarks/kernels.py --threads 2")
    rows = report["results"]
    for isa in _native.isas():
        timed = [row["kernel"] for row in rows if row["isa"] == isa]
        for name, *_ in _native.formats():
            # One and five tokens from the cache, one from memory.
            assert timed.count(f"matmul {name}") == 3
        for name in _native.cache_types():
            assert timed.count(f"attention {name}") == 2
        for op in ("pack", "rms_norm", "silu_mul"):
            assert {f"{op} to q8", f"{op} to f32"} <= set(timed)
        assert timed.count("limit") == 3
    assert all(0 < row["rate"] < 1e6 for row in rows)


def test_rates_and_shares_are_counted_by_hand(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def time_matmul(*arguments: object) -> list[float]:
        calls.append(arguments)
        count, runs = arguments[-2:]
        return [0.001 * count] * runs  # type: ignore[operator]

    monkeypatch.setattr(kernels, "testing", type("", (), {"time_matmul": time_matmul}))
    pool = _native.ThreadPool(2)
    bench = kernels.Bench("scalar", pool, Limits(1e9, 1e10, 1e10), seconds=0.01, runs=3)
    row = bench.matmul("q4_0", 5, streamed=False)
    # 16 KB hold 28 tiles of 16 rows and 2 blocks of 288 bytes: for each of the two threads.
    rows = 2 * 28 * 16
    assert calls[-1] == ("scalar", pool, "q4_0", rows, 64, 5, 10, 3)
    assert row.rate == pytest.approx(rows * 64 * 5 / 0.001 / 1e9)
    assert (row.limit, row.share) == ("int8", pytest.approx(rows * 64 * 5 / 1e10 / 0.001))
    row = bench.matmul("q4_0", 1, streamed=True)
    assert (row.limit, row.share) == ("read", pytest.approx(28 * 576 / 1e9 / 0.001))


def test_the_table_has_a_line_a_figure(
    kernels: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--isa", "scalar", "--format", "q8_0", "--threads", "1"]
    kernels.main([*flags, "--seconds", "0.0001", "--runs", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert sum("matmul q8_0" in line for line in lines) == 3


@pytest.mark.parametrize("flag", ["--threads", "--runs", "--seconds"])
def test_nothing_is_measured_for_no_time(kernels: ModuleType, flag: str) -> None:
    with pytest.raises(SystemExit):
        kernels.main([flag, "0"])
