"""Time every kernel alone: each format and instruction set, beside the limits of the machine.

A product is timed twice. `cached`: a panel of weights that stays in L2, as a prompt's products read
it; its limit is the arithmetic. `streamed`: a matrix larger than the caches, as one token reads it;
its limit is the memory or the arithmetic, whichever is nearer. All threads work at once. The limits
are measured in the same run, one instruction set at a time.

Formats and instruction sets come from the build: a new one is timed without a change here.

    python benchmarks/kernels.py --format q4_0 --isa avx2
    python benchmarks/kernels.py --json > benchmarks/results/kernels.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from inferno import _native, machine
from inferno.bench.limits import Limits, probe
from inferno.bench.provenance import provenance
from inferno.loading import PACKED_FORMATS

testing = _native.testing

TOKENS = (1, 2, 4, 8, 64)
COLUMNS = 2048  # as TinyLlama's rows
PANEL_BYTES = 128 << 10  # of packed weights a thread: kPanelBytes in native/runtime/executor.cpp
STREAM_BYTES = 128 << 20  # four times the last-level cache of a common machine
STREAMED_TOKENS = 4  # more tokens reread each panel from L2: that is `cached`
TILE_ROWS = 16
HEADS, KV_HEADS, HEAD_DIM = 32, 4, 64  # as TinyLlama's
DEPTHS = (512, 2048)
PACKS = ("pack", "rms_norm", "silu_mul")


@dataclass(frozen=True)
class Row:
    """A measurement: `rate` in `unit`, and its share of a limit, if it has one."""

    isa: str
    kernel: str
    work: str
    rate: float
    unit: str
    limit: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Bench:
    """Threads, limits and how long to look; `isa` is the one that all of it is about."""

    isa: str
    pool: _native.ThreadPool
    limits: Limits
    seconds: float
    runs: int

    def seconds_of(self, timed: Callable[[int, int], list[float]]) -> float:
        """Return the median seconds of one call of what `timed(calls, runs)` times."""
        (once,) = timed(1, 1)
        calls = max(1, int(self.seconds / once))
        return statistics.median(timed(calls, self.runs)) / calls

    def matmul(self, format: str, tokens: int, streamed: bool) -> Row:
        facts = PACKED_FORMATS[format]
        tile_bytes = facts.packed_bytes(TILE_ROWS, COLUMNS)
        tiles = STREAM_BYTES // tile_bytes if streamed else PANEL_BYTES // tile_bytes
        tiles = max(1, tiles) * (1 if streamed else self.pool.size)
        rows = tiles * TILE_ROWS
        seconds = self.seconds_of(
            lambda *calls: testing.time_matmul(
                self.isa, self.pool, format, rows, COLUMNS, tokens, *calls
            )
        )
        macs = rows * COLUMNS * tokens
        integer = facts.activation != "f32"
        arithmetic = self.limits.int8_macs if integer else self.limits.float_macs
        least = {"int8" if integer else "fma": macs / arithmetic}
        if streamed:
            least["read"] = tiles * tile_bytes / self.limits.read_bytes
        limit = max(least, key=least.__getitem__)
        where = "streamed" if streamed else "cached"
        work = f"{tokens} tokens, {where}"
        share = least[limit] / seconds
        return Row(self.isa, f"matmul {format}", work, macs / seconds / 1e9, "GMAC/s", limit, share)

    def attention(self, kv_cache: str, tokens: int, depth: int) -> Row:
        draw = np.random.default_rng(0)
        q = draw.standard_normal((tokens, HEADS, HEAD_DIM), np.float32)
        k, v = draw.standard_normal((2, depth, KV_HEADS, HEAD_DIM), np.float32)
        seconds = self.seconds_of(
            lambda *calls: testing.time_attention(self.isa, self.pool, kv_cache, q, k, v, *calls)
        )
        # Scores and sums of values; a prompt's token sees itself and those before it.
        seen = sum(depth - tokens + 1 + t for t in range(tokens))
        macs = 2 * seen * HEADS * HEAD_DIM * self.pool.size
        return Row(
            self.isa, f"attention {kv_cache}", f"{tokens} tokens at {depth}",
            macs / seconds / 1e9, "GMAC/s", "fma", macs / seconds / self.limits.float_macs,
        )  # fmt: skip

    def packing(self, op: str, kind: str) -> Row:
        x, other = np.random.default_rng(0).standard_normal((2, COLUMNS), np.float32)
        seconds = self.seconds_of(
            lambda *calls: testing.time_pack(self.isa, self.pool, op, kind, x, other, *calls)
        )
        rate = COLUMNS * self.pool.size / seconds / 1e9
        return Row(self.isa, f"{op} to {kind}", f"{COLUMNS} columns", rate, "G values/s")

    def rows(self, formats: list[str]) -> Iterator[Row]:
        """Measure everything, row by row."""
        machine_limits = (
            ("read", self.limits.read_bytes, "GB/s"),
            ("int8", self.limits.int8_macs, "GMAC/s"),
            ("fma", self.limits.float_macs, "GMAC/s"),
        )
        for name, rate, unit in machine_limits:
            yield Row(self.isa, "limit", name, rate / 1e9, unit)
        for format in formats:
            for tokens in TOKENS:
                yield self.matmul(format, tokens, streamed=False)
            for tokens in (t for t in TOKENS if t <= STREAMED_TOKENS):
                yield self.matmul(format, tokens, streamed=True)
        for kv_cache in _native.cache_types():
            for depth in DEPTHS:
                for tokens in (1, 64):
                    yield self.attention(kv_cache, tokens, depth)
        for op in PACKS:
            for kind in sorted({facts.activation for facts in PACKED_FORMATS.values()}):
                yield self.packing(op, kind)


def line(row: Row) -> str:
    part = "" if row.share is None else f"{100 * row.share:4.0f} % {row.limit}"
    rate = f"{row.rate:9.2f} {row.unit}"
    return f"| {row.isa:<12} | {row.kernel:<16} | {row.work:<19} | {rate:<20} | {part:<11} |"


def main(arguments: list[str] | None = None) -> None:
    isas, formats = _native.isas(), [name for name, *_ in _native.formats()]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", action="append", choices=isas, help="only this one")
    parser.add_argument("--format", action="append", choices=formats, help="only this one")
    parser.add_argument("--threads", type=int, default=machine.default_threads())
    parser.add_argument("--seconds", type=float, default=0.05, help="of a run (0.05)")
    parser.add_argument("--runs", type=int, default=5, help="whose median counts (5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if min(options.threads, options.runs) < 1 or options.seconds <= 0:
        parser.error("--threads, --runs and --seconds: expected more than 0")
    pool, found = _native.ThreadPool(options.threads), []
    if not options.json:
        print(f"| {'isa':<12} | {'kernel':<16} | {'work':<19} | {'rate':<20} | {'of limit':<11} |")
        print(f"|{'-' * 14}|{'-' * 18}|{'-' * 21}|{'-' * 22}|{'-' * 13}|")
    for isa in options.isa or isas:
        bench = Bench(isa, pool, probe(options.threads, isa), options.seconds, options.runs)
        for row in bench.rows(options.format or formats):
            found.append(row)
            if not options.json:
                print(line(row), flush=True)
    if options.json:
        words = sys.argv[1:] if arguments is None else arguments
        origin = provenance("python benchmarks/kernels.py", words)
        results = [asdict(row) for row in found]
        print(json.dumps({**origin, "threads": options.threads, "results": results}, indent=1))


if __name__ == "__main__":
    main()
