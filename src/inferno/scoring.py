"""How likely a model finds a text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inferno.graph import Floats


@dataclass(frozen=True)
class Score:
    """Log probabilities of ids[1:], each given all before it: (n - 1,) f32, natural logarithm."""

    ids: tuple[int, ...]
    logprobs: Floats

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log probability; NaN for fewer than two ids."""
        if not len(self.logprobs):
            return math.nan
        try:
            return math.exp(-float(self.logprobs.mean(dtype=float)))
        except OverflowError:
            return math.inf
