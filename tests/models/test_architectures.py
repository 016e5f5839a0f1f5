"""Every architecture against transformers, from both containers, at lengths beyond its window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import architectures
import engines
import f16_cache
from checkpoints import Array
from inferno.models import supported
from reference import quantization

# Float32 rounding, and where it moves a key or value across the middle of two float16 numbers, the
# 5e-4 between them.
TOLERANCE = 1e-4

IDS = engines.random_ids(70)

# What no GGUF says, and so is as llama.cpp has it.
UNSAID: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "gpt_oss": {"swiglu_limit": 7.0},
}

each_architecture = pytest.mark.parametrize("model_type", supported())


def assert_parity(path: Path, *, tolerance: float = TOLERANCE, **options: Any) -> None:
    expected = f16_cache.transformers_logits(path, IDS)
    found = engines.load(path, **options).logits(IDS)
    assert f16_cache.distance(found, expected) < tolerance
    # No single logit may hide among the many that are right.
    assert np.abs(found - expected).max() < 10 * tolerance * np.abs(expected).max()


@each_architecture
def test_a_model_agrees_with_transformers(tmp_path: Path, model_type: str) -> None:
    assert_parity(architectures.save(tmp_path, model_type))


@each_architecture
def test_gguf_and_safetensors_of_a_model_agree_bit_for_bit(tmp_path: Path, model_type: str) -> None:
    directory = architectures.save(tmp_path / "directory", model_type, **UNSAID.get(model_type, {}))
    gguf = architectures.save_gguf(tmp_path / "model.gguf", directory)
    found = engines.load(gguf).logits(IDS)
    assert found.tobytes() == engines.load(directory).logits(IDS).tobytes()


@each_architecture
def test_a_model_agrees_with_the_reference(tmp_path: Path, model_type: str) -> None:
    path = architectures.save(tmp_path, model_type)
    expected = f16_cache.reference_logits(*architectures.read(path), IDS)
    assert f16_cache.distance(engines.load(path).logits(IDS), expected) < TOLERANCE


@pytest.mark.parametrize("format", ["q8_0", "q4_0"])
@each_architecture
def test_quantized_weights_agree_with_the_reference(
    tmp_path: Path, model_type: str, format: str
) -> None:
    """The oracle rounds activations as the kernels do, so that it routes by the same scores.

    What is left are values that float32's noise moves across the middle of two int8 numbers; where
    two experts tie but for that, a token takes another one, so it is the median row that counts.
    """
    directory = architectures.save(tmp_path / "directory", model_type, **UNSAID.get(model_type, {}))
    gguf = architectures.save_gguf(tmp_path / "model.gguf", directory, format=format)
    config, tensors = architectures.read(directory)

    def activations(x: Array) -> Array:
        # What a row of no whole blocks is multiplied with stays f16, and reads float32.
        return x if x.shape[-1] % 32 else quantization.round_activations(x)

    tensors = architectures.rounded(tensors, format)
    expected = f16_cache.reference_logits(config, tensors, IDS, activations)
    found = engines.load(gguf).logits(IDS)
    errors = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert np.median(errors) < 0.02
