"""Where the time of a workload goes inside this engine, phase by phase, by wall clock."""

from __future__ import annotations

from inferno.bench.measure import Workload
from inferno.engine import Engine


def profile(engine: Engine, workload: Workload) -> dict[str, dict[str, float]]:
    """Run `workload` once more with the clock in every chunk; return its phases, longest first.

    For each: `milliseconds` a token, `part` of the whole, and `waiting`, the part of its threads'
    time that none of its chunks took. The clock itself costs a few percent.
    """
    executor = engine._executor
    ids = [7 + i % 91 for i in range(max(workload.prompt, workload.depth, 1))]
    session = engine.new_session()
    if workload.generate:
        session.feed(ids)
    executor.profiling = True
    try:
        if workload.prompt:
            session.feed(ids)
        else:
            for token in range(workload.generate):
                session.feed([token])
        times = executor.profile()
    finally:
        executor.profiling = False
    total = sum(wall for _, wall, _, _ in times)
    return {
        name: {
            "milliseconds": 1e3 * wall / workload.tokens,
            "part": wall / total,
            "waiting": max(0.0, 1 - busy / (wall * engine.threads)),
        }
        for name, wall, busy, _ in sorted(times, key=lambda entry: -entry[1])
    }
