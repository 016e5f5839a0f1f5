"""Tiny random models against transformers, whatever their shape, dtype and container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
import engines
import f16_cache
from reference import quantization

# Float32 rounding, and where it moves a key or value across the middle of two float16 numbers, the
# 5e-4 between them.
TOLERANCE = 1e-4

IDS = engines.random_ids(70)

SHAPES: dict[str, dict[str, Any]] = {
    "heads 1:1": {"heads": 4, "kv_heads": 4},
    "heads 2:1": {"heads": 4, "kv_heads": 2},
    "heads 4:1": {"heads": 4, "kv_heads": 1},
    "heads 8:1": {"heads": 8, "kv_heads": 1, "head_dim": 8},
    "head of 8": {"head_dim": 8},
    "head of 40": {"head_dim": 40, "heads": 2, "kv_heads": 1},
    "head of 64": {"head_dim": 64, "heads": 2, "kv_heads": 1},
    "head of 80": {"head_dim": 80, "heads": 2, "kv_heads": 1},
    "head of 128": {"head_dim": 128, "heads": 2, "kv_heads": 1},
    "tied head": {"ties": True},
    "sizes of no block": {"hidden": 40, "intermediate": 50, "vocab": 333},
    "long waves": {"rope_theta": 500_000.0, "layers": 1},
    "large epsilon": {"eps": 0.1},
}


def assert_parity(path: Path, tolerance: float = TOLERANCE) -> None:
    expected = f16_cache.transformers_logits(path, IDS)
    found = engines.load(path).logits(IDS)
    assert f16_cache.distance(found, expected) < tolerance
    # No single logit may hide among the many that are right.
    assert np.abs(found - expected).max() < 10 * tolerance * np.abs(expected).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_llama_agrees_with_transformers(tmp_path: Path, shape: str) -> None:
    assert_parity(checkpoints.tiny_llama(tmp_path, **SHAPES[shape]))


@pytest.mark.parametrize("shape", ["heads 2:1", "heads 8:1", "head of 80", "tied head"])
def test_a_qwen2_agrees_with_transformers(tmp_path: Path, shape: str) -> None:
    assert_parity(checkpoints.tiny_qwen2(tmp_path, **SHAPES[shape]))


@pytest.mark.parametrize("biases", [{"bias": True}, {"mlp_bias": True}])
def test_a_llama_with_biases_agrees_with_transformers(
    tmp_path: Path, biases: dict[str, Any]
) -> None:
    assert_parity(checkpoints.tiny_llama(tmp_path, **biases))


@pytest.mark.parametrize("make", [checkpoints.tiny_llama, checkpoints.tiny_qwen2])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_agrees_with_transformers(tmp_path: Path, make: Any, dtype: str) -> None:
    """Halves are multiplied in float32, and norms and biases may be halves too."""
    assert_parity(make(tmp_path, dtype=dtype, bias=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shards_are_the_same_model_as_one_file(tmp_path: Path, dtype: str) -> None:
    one = checkpoints.tiny_llama(tmp_path / "one", dtype=dtype)
    many = checkpoints.tiny_llama(tmp_path / "many", dtype=dtype, shards=4)
    assert len(list(many.glob("*.safetensors"))) >= 4
    assert engines.load(one).logits(IDS).tobytes() == engines.load(many).logits(IDS).tobytes()


def test_configs_of_before_transformers_5_are_the_same_model(tmp_path: Path) -> None:
    options = {"rope_theta": 123_456.0, "config_style": "transformers-4"}
    old = checkpoints.tiny_llama(tmp_path / "old", **options)
    new = checkpoints.tiny_llama(tmp_path / "new", rope_theta=123_456.0)
    assert engines.load(old).logits(IDS).tobytes() == engines.load(new).logits(IDS).tobytes()


@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
@pytest.mark.parametrize("ties", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gguf_and_safetensors_of_a_model_agree_bit_for_bit(
    tmp_path: Path, model_type: str, ties: bool, dtype: str
) -> None:
    """A llama GGUF has the rows of q and k, and their biases, in another order."""
    config = checkpoints.tiny_config(model_type, ties=ties, bias=True, kv_heads=1)
    tensors = checkpoints.rounded(checkpoints.random_tensors(config), dtype)
    directory = checkpoints.save_checkpoint(tmp_path / "directory", config, tensors, dtype)
    format = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]
    gguf = checkpoints.gguf_llama(tmp_path / "model.gguf", config, tensors, format=format)
    found = engines.load(gguf).logits(IDS)
    assert found.tobytes() == engines.load(directory).logits(IDS).tobytes()


def test_a_split_gguf_is_the_same_model_as_one_file(tmp_path: Path) -> None:
    config = checkpoints.tiny_config()
    tensors = checkpoints.random_tensors(config)
    one = checkpoints.gguf_llama(tmp_path / "one.gguf", config, tensors)
    first = checkpoints.gguf_llama(
        tmp_path / "split.gguf", config, tensors, tokenizer="gpt2", split_max_tensors=5
    )
    assert len(list(tmp_path.glob("split*.gguf"))) > 2
    assert engines.load(first).logits(IDS).tobytes() == engines.load(one).logits(IDS).tobytes()


@pytest.mark.parametrize("format", [f for f in quantization.FORMATS if quantization.COLUMNS[f] > 1])
def test_quantized_weights_agree_with_the_reference(tmp_path: Path, format: str) -> None:
    """The oracle has the dequantized weights; what remains is int8 activations, about 1 %."""
    path = engines.tiny_gguf(tmp_path / "model.gguf", format=format, bias=True)
    config, tensors = checkpoints.read_gguf(path)
    expected = f16_cache.reference_logits(config, tensors, IDS)
    assert f16_cache.distance(engines.load(path).logits(IDS), expected) < 0.02


def test_a_slight_change_of_the_weights_is_seen(tmp_path: Path) -> None:
    """The tolerance would notice one bias or norm that is left out."""
    config = checkpoints.tiny_config(bias=True)
    tensors = checkpoints.random_tensors(config)
    engine = engines.load(checkpoints.gguf_llama(tmp_path / "model.gguf", config, tensors))
    found = engine.logits(IDS)
    assert f16_cache.distance(found, f16_cache.reference_logits(config, tensors, IDS)) < TOLERANCE
    for name, values in tensors.items():
        if values.ndim == 1:
            plain = np.ones_like(values) if "norm" in name else np.zeros_like(values)
            changed = f16_cache.reference_logits(config, {**tensors, name: plain}, IDS)
            if "k_proj.bias" not in name:  # softmax hardly sees it
                assert f16_cache.distance(found, changed) > 10 * TOLERANCE, name
