"""Runs the workloads: contenders in turns, run by run, so that a slow minute hits all of them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inferno.bench.contenders import Contender

RUNS = 7  # counted, after one that warms up


@dataclass(frozen=True)
class Workload:
    """Prefill of `prompt` tokens, or decode of `generate` tokens after `depth` others."""

    prompt: int = 0
    generate: int = 0
    depth: int = 0

    @property
    def name(self) -> str:
        """As llama-bench calls it: pp512, tg64, tg64 @ d1500."""
        if self.prompt:
            return f"pp{self.prompt}"
        return f"tg{self.generate}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def tokens(self) -> int:
        return self.prompt or self.generate


@dataclass(frozen=True)
class Rates:
    """Tokens a second, one for each run."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def least(self) -> float:
        return min(self.runs)

    @property
    def most(self) -> float:
        return max(self.runs)

    def over(self, other: Rates) -> float:
        """Return the median of the ratios, run by run."""
        return statistics.median(a / b for a, b in zip(self.runs, other.runs, strict=True))


def run(
    contenders: Sequence[Contender],
    workload: Workload,
    *,
    runs: int = RUNS,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> list[Rates]:
    """Return the rates of each contender; all get the same ids, and new ones each run."""
    draw = random.Random(f"{workload} {seed}")
    vocab_size = min(c.vocab_size for c in contenders)
    seconds: list[list[float]] = [[] for _ in contenders]
    for number in range(runs + 1):
        # No engine may reuse what it computed in an earlier run.
        first = [draw.randrange(vocab_size) for _ in range(workload.prompt or workload.depth or 1)]
        more = [draw.randrange(vocab_size) for _ in range(workload.generate)]
        for contender, taken in zip(contenders, seconds, strict=True):
            took = contender.prefill(first) if workload.prompt else contender.decode(first, more)
            if number > 0:
                taken.append(took)
            tick()
    return [Rates(tuple(workload.tokens / s for s in taken)) for taken in seconds]
