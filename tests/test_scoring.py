"""Scores: what follows from the log probabilities."""

from __future__ import annotations

import math

import numpy as np

from inferno.scoring import Score, exponential, shortened


def test_perplexity_is_the_exponential_of_the_mean_loss() -> None:
    assert math.isclose(Score((1, 2, 3), np.float32([-1, -3])).perplexity, math.exp(2))


def test_perplexity_beyond_what_a_float_holds_is_infinite() -> None:
    assert Score((1, 2), np.float32([-800])).perplexity == math.inf
    assert Score((1, 2), np.float32([-math.inf])).perplexity == math.inf
    assert math.isnan(Score((1,), np.float32([])).perplexity)


def test_the_exponential_is_the_nearest_float() -> None:
    assert exponential(0.0) == 1.0 and exponential(-math.inf) == 0.0
    assert exponential(1.0).hex() == "0x1.5bf0a8b145769p+1"
    assert exponential(709.78) < exponential(709.79) == math.inf
    for x in np.random.default_rng(0).uniform(-700, 700, 100):
        assert abs(exponential(x) - math.exp(x)) <= 2 * math.ulp(math.exp(x))


def test_a_shortened_vector_is_the_beginning_at_length_one() -> None:
    vectors = np.float32([[3, 4, 12], [0, 0, 1]])
    assert shortened(vectors, 3) is vectors
    assert shortened(vectors, 2).tolist() == np.float32([[0.6, 0.8], [0, 0]]).tolist()
    assert shortened(vectors, 1).tolist() == [[1], [0]]
