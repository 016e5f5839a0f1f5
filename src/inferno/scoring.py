"""What a forward pass says of a text as a whole: how likely it is, and a vector for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
        try:
            return math.exp(-float(self.logprobs.mean(dtype=float)))
        except OverflowError:
            return math.inf


def pooled(states: Floats, pooling: str) -> Floats:
    """Return one vector of length 1 for hidden states (tokens, hidden_size): (hidden_size,) f32."""
    if pooling == "mean":
        vector = states.mean(axis=0, dtype=np.float64)
    else:
        vector = states[-1 if pooling == "last" else 0].astype(np.float64)
    length = math.sqrt(float(vector @ vector))
    return np.asarray(vector / length if length else vector, dtype=np.float32)


def shortened(vectors: Floats, dimensions: int) -> Floats:
    """Return the first dimensions of vectors (n, width), each of length 1 again."""
    if dimensions == vectors.shape[1]:
        return vectors
    head = vectors[:, :dimensions].astype(np.float64)
    lengths = np.sqrt((head * head).sum(axis=1, keepdims=True))
    return np.asarray(head / np.where(lengths, lengths, 1.0), dtype=np.float32)
