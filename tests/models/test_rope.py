"""Inverse frequencies: the formula in double precision, and what cannot be one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint
from inferno.models.rope import inverse_frequencies

CONFIG = ModelConfig(
    model_type="llama",
    architecture="llama",
    vocab_size=8,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=64,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
)


@pytest.mark.parametrize("theta", [1e-30, 1.0, 10_000.0, 1e12])
def test_frequencies_are_those_of_the_formula(theta: float) -> None:
    expected = theta ** (-2 * np.arange(32) / 64)
    found = inverse_frequencies(dataclasses.replace(CONFIG, rope_theta=theta))
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("theta", [1e-40, 5e-324])
def test_a_base_whose_frequencies_overflow_is_an_invalid_checkpoint(theta: float) -> None:
    with pytest.raises(InvalidCheckpoint, match="rope_theta"):
        inverse_frequencies(dataclasses.replace(CONFIG, rope_theta=theta))
