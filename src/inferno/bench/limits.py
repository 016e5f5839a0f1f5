"""What a model asks of the machine, and what the machine could give: shares of the limits."""

from __future__ import annotations

from dataclasses import dataclass

from inferno import _native
from inferno.bench.measure import Workload
from inferno.engine import Engine
from inferno.loading import PACKED_FORMATS


@dataclass(frozen=True)
class Limits:
    """The machine, measured on the engine's threads: bytes and multiply-adds a second."""

    read_bytes: float
    int8_macs: float
    float_macs: float


@dataclass(frozen=True)
class Demand:
    """What the matrices of a model take; the head counts apart, for a prompt runs it once."""

    weight_bytes: int  # read a token of decode, head included
    cache_bytes: int  # a position of context
    int8_macs: int  # a token
    float_macs: int
    head_int8_macs: int
    head_float_macs: int


def probe(threads: int, isa: str) -> Limits:
    """Measure the machine on new threads; takes about a second."""
    return Limits(*_native.probe_machine(_native.ThreadPool(threads), isa))


def measure_limits(engine: Engine) -> Limits:
    """Measure the machine on the engine's threads and instructions."""
    return Limits(*_native.probe_machine(engine._pool, engine.isa))


def demand(engine: Engine) -> Demand:
    """Count what the plan's products take."""
    program = engine._loaded.program
    products = [program.matrices[op.matrix] for op in program.operations if op.kind == "linear"]
    macs = [(PACKED_FORMATS[m.format].activation, m.rows * m.columns) for m in products]
    *body, head = macs
    return Demand(
        sum(PACKED_FORMATS[m.format].packed_bytes(m.rows, m.columns) for m in products),
        engine.memory.kv_cache_per_token,
        sum(count for kind, count in body if kind != "f32"),
        sum(count for kind, count in body if kind == "f32"),
        head[1] if head[0] != "f32" else 0,
        head[1] if head[0] == "f32" else 0,
    )


def share(workload: Workload, rate: float, d: Demand, limits: Limits) -> tuple[str, float]:
    """Return which limit the workload meets, and how much of it `rate` tokens a second is.

    Decode reads every weight, and the cache up to its position, once a token. Prefill multiplies;
    attention is not counted, so its share is a lower bound.
    """
    if workload.generate:
        context = workload.depth + workload.generate / 2
        return "bandwidth", rate * (d.weight_bytes + context * d.cache_bytes) / limits.read_bytes
    heads = 1 / workload.prompt
    seconds = (d.int8_macs + heads * d.head_int8_macs) / limits.int8_macs
    seconds += (d.float_macs + heads * d.head_float_macs) / limits.float_macs
    return "arithmetic", rate * seconds
