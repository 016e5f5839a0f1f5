"""What a forward pass says of a text as a whole: how likely it is, and a vector for it."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt

from inferno.graph import Floats

POOLINGS = ("mean", "last", "cls")


@dataclass(frozen=True)
class Score:
    """How likely a text is.

    Attributes:
        ids: its n tokens.
        logprobs: natural logarithms of the probabilities of ids[1:], each given all before it:
            (n - 1,) f32.
    """

    ids: tuple[int, ...]
    logprobs: Floats

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log probability; NaN for fewer than two ids."""
        if not len(self.logprobs):
            return math.nan
        return exponential(-math.fsum(self.logprobs.tolist()) / len(self.logprobs))


def exponential(x: float) -> float:
    """Return e^x, or infinity: the float64 that is nearest.

    The C library's is not, and not the same one on every system.
    """
    if x > math.log(sys.float_info.max):
        return math.inf
    return float(Decimal(x).exp(Context(prec=40)))


def pooled(states: Floats, pooling: str) -> Floats:
    """Return one vector of length 1 for hidden states (tokens, hidden_size): (hidden_size,) f32."""
    if pooling == "mean":
        vector = states.mean(axis=0, dtype=np.float64)
    else:
        vector = states[-1 if pooling == "last" else 0].astype(np.float64)
    return _scaled(vector)


def shortened(vectors: Floats, dimensions: int) -> Floats:
    """Return the first dimensions of vectors (n, width), each of length 1 again."""
    if dimensions == vectors.shape[1]:
        return vectors
    heads = [_scaled(row) for row in vectors[:, :dimensions].astype(np.float64)]
    return np.array(heads, dtype=np.float32).reshape(len(vectors), dimensions)


def _scaled(vector: npt.NDArray[np.float64]) -> Floats:
    # fsum rounds once, whatever the order: BLAS has one for each CPU.
    length = math.sqrt(math.fsum(np.square(vector).tolist()))
    return np.asarray(vector / length if length else vector, dtype=np.float32)
