"""Runs the workloads: contenders in turns, run by run, so that a slow minute hits all of them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inferno.bench.contenders import Contender, Prompt, Timing

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
    """Tokens a second, one for each run, and the tokens that each engine counted."""

    runs: tuple[float, ...]
    tokens: tuple[int, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def least(self) -> float:
        return min(self.runs)

    @property
    def most(self) -> float:
        return max(self.runs)

    @property
    def deviation(self) -> float:
        """The sample's standard deviation, as llama-bench prints it; 0 of one run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else 0.0

    def over(self, other: Rates) -> float:
        """Return the median of the ratios, run by run."""
        return statistics.median(a / b for a, b in zip(self.runs, other.runs, strict=True))


class PromptSource(Protocol):
    """Draws prompts for `run`: `tokens` long, and different each time."""

    def __call__(self, draw: random.Random, tokens: int) -> Prompt: ...


def random_ids(vocab_size: int) -> PromptSource:
    """Return a source of prompts that are ids and no text."""

    def prompt(draw: random.Random, tokens: int) -> Prompt:
        return Prompt([draw.randrange(vocab_size) for _ in range(tokens)])

    return prompt


def run(
    contenders: Sequence[Contender],
    workload: Workload,
    prompts: PromptSource,
    *,
    runs: int = RUNS,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> list[Rates]:
    """Return the rates of each contender; all get the same prompts, and new ones each run."""
    draw = random.Random(f"{workload} {seed}")
    vocab_size = smallest_vocabulary(contenders)
    timings: list[list[Timing]] = [[] for _ in contenders]
    for number in range(runs + 1):
        # No engine may reuse what it computed in an earlier run.
        prompt = prompts(draw, workload.prompt or workload.depth or 1)
        more = [draw.randrange(vocab_size) for _ in range(workload.generate)]
        for contender, taken in zip(contenders, timings, strict=True):
            timing = contender.decode(prompt, more) if more else contender.prefill(prompt)
            if number > 0:
                taken.append(timing)
            tick()
    return [
        Rates(tuple(t.tokens / t.seconds for t in taken), tuple(t.tokens for t in taken))
        for taken in timings
    ]


def smallest_vocabulary(contenders: Sequence[Contender]) -> int:
    """Return how many ids all of those know that take ids."""
    return min(c.vocab_size for c in contenders if c.vocab_size is not None)
