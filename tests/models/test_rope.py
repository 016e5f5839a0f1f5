"""Rotations: the formula in double precision, transformers for each scaling, and what is none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import architectures
import engines
import f16_cache
from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint, InvalidOption, UnsupportedModel
from inferno.models.rope import rope

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
ORIGINAL = 32  # positions that the scaled models "were trained on"
LENGTH = 100  # of the texts, well beyond

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn, not truncated": {**YARN, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn with a factor": {**YARN, "attention_factor": 1.5},
    "yarn with mscale": {**YARN, "mscale": 1.2, "mscale_all_dim": 0.7},
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + i / 8 for i in range(6)],
    "long_factor": [2.0 + i for i in range(6)],
    "original_max_position_embeddings": ORIGINAL,
}


@pytest.mark.parametrize("theta", [1e-30, 1.0, 10_000.0, 1e12])
def test_frequencies_are_those_of_the_formula(theta: float) -> None:
    expected = theta ** (-2 * np.arange(32) / 64)
    found = rope(dataclasses.replace(CONFIG, rope_theta=theta))
    np.testing.assert_allclose(found.inverse_frequencies, expected, rtol=1e-7)
    assert found.factor == 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("theta", [1e-40, 5e-324])
def test_a_base_whose_frequencies_overflow_is_an_invalid_checkpoint(theta: float) -> None:
    with pytest.raises(InvalidCheckpoint, match="rope_theta"):
        rope(dataclasses.replace(CONFIG, rope_theta=theta))


def assert_parity(path: Path, length: int, **options: Any) -> None:
    ids = engines.random_ids(length)
    expected = f16_cache.transformers_logits(path, ids)
    found = engines.load(path, **options).logits(ids)
    assert f16_cache.distance(found, expected) < 1e-4


def scaled_llama(path: Path, scaling: dict[str, Any], **options: Any) -> Path:
    parameters = {**scaling, "rope_theta": 10_000.0}
    context = ORIGINAL if scaling["rope_type"] == "dynamic" else 4 * ORIGINAL
    options = {"max_position_embeddings": context, **options}
    return architectures.save(path, "llama", rope_parameters=parameters, **options)


@pytest.mark.parametrize("kind", SCALINGS)
def test_a_scaling_agrees_with_transformers_past_the_original_context(
    tmp_path: Path, kind: str
) -> None:
    path = scaled_llama(tmp_path, SCALINGS[kind])
    assert_parity(path, LENGTH, context=LENGTH)


@pytest.mark.parametrize("kind", SCALINGS)
def test_a_scaling_changes_the_logits(tmp_path: Path, kind: str) -> None:
    """The agreement above would be worth nothing if the text were too short to tell."""
    ids = engines.random_ids(LENGTH)
    scaled = scaled_llama(tmp_path / "scaled", SCALINGS[kind])
    plain = architectures.save(tmp_path / "plain", "llama", max_position_embeddings=LENGTH)
    found = engines.load(scaled, context=LENGTH).logits(ids)
    assert f16_cache.distance(found, engines.load(plain).logits(ids)) > 0.01


@pytest.mark.parametrize("kind", SCALINGS)
def test_the_keys_of_older_configs_mean_the_same(tmp_path: Path, kind: str) -> None:
    """`rope_scaling` with `type` at its side, and `rope_theta` at the top."""
    path = scaled_llama(tmp_path, SCALINGS[kind])
    ids = engines.random_ids(60)
    found = engines.load(path, context=LENGTH).logits(ids).tobytes()
    file = path / "config.json"
    config = json.loads(file.read_text("utf-8"))
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    for spelling in ("rope_type", "type"):
        scaling[spelling] = scaling.pop("rope_type", None) or scaling.pop("type")
        file.write_text(json.dumps({**config, "rope_scaling": scaling}), "utf-8")
        assert engines.load(path, context=LENGTH).logits(ids).tobytes() == found


def test_dynamic_scaling_begins_where_the_context_asked_for_is_longer(tmp_path: Path) -> None:
    path = scaled_llama(tmp_path, SCALINGS["dynamic"])
    assert_parity(path, ORIGINAL)  # as transformers has it up to there
    with pytest.raises(InvalidOption, match=f"from 1 to {4 * ORIGINAL}, found"):
        engines.load(path, context=4 * ORIGINAL + 1)


@pytest.mark.parametrize(("length", "context"), [(ORIGINAL, ORIGINAL), (LENGTH, LENGTH)])
def test_longrope_agrees_with_transformers_on_both_sides_of_the_original_length(
    tmp_path: Path, length: int, context: int
) -> None:
    path = phi3_with_longrope(tmp_path)
    assert_parity(path, length, context=context)


def phi3_with_longrope(path: Path) -> Path:
    """A head of 16 of which 12 columns are rotated, as in Phi-4-mini."""
    parameters = {**LONGROPE, "rope_theta": 10_000.0, "partial_rotary_factor": 0.75}
    sizes = {"max_position_embeddings": 128, "original_max_position_embeddings": ORIGINAL}
    return architectures.save(
        path, "phi3", rope_parameters=parameters, partial_rotary_factor=0.75, **sizes
    )


@pytest.mark.parametrize("context", [ORIGINAL, LENGTH])
def test_longrope_from_gguf_is_the_same_rotation(tmp_path: Path, context: int) -> None:
    directory = phi3_with_longrope(tmp_path / "directory")
    gguf = architectures.save_gguf(tmp_path / "model.gguf", directory)
    ids = engines.random_ids(context)
    found = engines.load(gguf, context=context).logits(ids)
    # GGUF holds the factors as float32.
    expected = engines.load(directory, context=context).logits(ids)
    assert f16_cache.distance(found, expected) < 1e-4


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_scalings_of_gguf_metadata_are_the_same_rotation(tmp_path: Path, kind: str) -> None:
    directory = scaled_llama(tmp_path / "directory", SCALINGS[kind])
    gguf = architectures.save_gguf(tmp_path / "model.gguf", directory)
    ids = engines.random_ids(LENGTH)
    found = engines.load(gguf).logits(ids).tobytes()
    assert found == engines.load(directory).logits(ids).tobytes()


def test_frequency_factors_of_gguf_are_llama3_scaling(tmp_path: Path) -> None:
    directory = scaled_llama(tmp_path / "directory", LLAMA3)
    gguf = architectures.save_gguf(tmp_path / "model.gguf", directory)
    ids = engines.random_ids(LENGTH)
    found = engines.load(gguf).logits(ids)
    assert f16_cache.distance(found, engines.load(directory).logits(ids)) < 1e-4


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "mrope"}, "RoPE scaling 'mrope' is not supported"),
        ({"rope_type": "frequency"}, r"\(supported: default, linear, dynamic, llama3, yarn"),
    ],
)
def test_an_unknown_scaling_is_unsupported(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        rope(dataclasses.replace(CONFIG, rope_scaling=scaling))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "linear"}, "`factor` of `rope_scaling`: expected a positive number, found"),
        ({"rope_type": "linear", "factor": "2"}, "found '2'"),
        ({"rope_type": "linear", "factor": float("nan")}, "found nan"),
        ({"rope_type": "llama3", "factor": 2.0}, "`low_freq_factor`"),
        ({**LLAMA3, "high_freq_factor": 1.0}, "expected more than low_freq_factor = 1, found 1"),
        ({**LONGROPE, "short_factor": [1.0]}, "expected 32 positive numbers, .* found 1 values"),
        ({**LONGROPE, "short_factor": None}, "expected 32 positive numbers, .* found None"),
        ({**LONGROPE, "short_factor": [0.0] * 32}, "expected 32 positive numbers"),
    ],
)
def test_numbers_that_make_no_rotation_are_invalid(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        rope(dataclasses.replace(CONFIG, rope_scaling=scaling))
