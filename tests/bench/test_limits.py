"""Shares of the limits, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import engines
from inferno.bench.limits import Demand, Limits, demand, measure_limits, share
from inferno.bench.measure import Workload

TAKES = Demand(
    weight_bytes=1000, cache_bytes=10, int8_macs=400, float_macs=30, head_int8_macs=200,
    head_float_macs=0,
)  # fmt: skip
MACHINE = Limits(read_bytes=100_000.0, int8_macs=8_000.0, float_macs=300.0)


def test_decode_is_measured_by_the_bytes_of_weights_and_cache() -> None:
    # 1,000 bytes of weights and 10 for each of 100 + 20/2 positions: 2,100 a token.
    assert share(Workload(generate=20, depth=100), 25.0, TAKES, MACHINE) == (
        "bandwidth",
        pytest.approx(25 * 2100 / 100_000),
    )


def test_prefill_is_measured_by_multiplications_and_runs_the_head_once() -> None:
    # 400 + 200/50 int8 at 8,000 a second, 30 floats at 300.
    seconds = 404 / 8000 + 30 / 300
    assert share(Workload(prompt=50), 2.0, TAKES, MACHINE) == (
        "arithmetic",
        pytest.approx(2 * seconds),
    )


def test_the_demand_of_a_model_is_its_matrices(tmp_path: Path) -> None:
    path = engines.tiny_gguf(
        tmp_path / "m.gguf", format="q8_0", hidden=64, intermediate=96, layers=2, heads=4,
        kv_heads=2, head_dim=16, vocab=320, ties=False,
    )  # fmt: skip
    takes = demand(engines.load(path))
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96
    assert (takes.int8_macs, takes.head_int8_macs) == (2 * layer, 64 * 320)
    assert takes.float_macs == takes.head_float_macs == 0
    # Every row and column here fills its tiles: 34 bytes for 32 weights.
    assert takes.weight_bytes == (2 * layer + 64 * 320) * 34 // 32
    assert takes.cache_bytes == 2 * 2 * 2 * 16 * 2


def test_the_machine_has_positive_limits(tmp_path: Path) -> None:
    limits = measure_limits(engines.load(engines.tiny_gguf(tmp_path / "m.gguf")))
    assert min(limits.read_bytes, limits.int8_macs, limits.float_macs) > 1e8
