"""The types of the KV cache against the numpy reference, which rounds keys and values alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import architectures
import checkpoints
import engines
import f16_cache
from inferno import _native
from reference import forward, kv_cache

IDS = engines.random_ids(70)

# Float32 rounding; what it moves across the middle of two numbers of the cache is, for q8_0, a
# 254th of the largest of a block.
TOLERANCE = {"f16": 1e-4, "f32": 1e-5, "q8_0": 1e-3}
# How far the logits of these tiny models are from exact ones: half steps, averaged over blocks.
LOSS = {"f16": 1e-3, "f32": 1e-5, "q8_0": 2e-2}


@pytest.mark.parametrize("cache", _native.cache_types())
@pytest.mark.parametrize("head_dim", [16, 40, 64])
def test_logits_agree_with_the_reference(tmp_path: Path, head_dim: int, cache: str) -> None:
    config = checkpoints.tiny_config(head_dim=head_dim, bias=True)
    tensors = checkpoints.random_tensors(config)
    path = checkpoints.gguf_llama(tmp_path / "model.gguf", config, tensors)
    found = engines.load(path, kv_cache=cache).logits(IDS)
    expected = f16_cache.reference_logits(config, tensors, IDS, cache=cache)
    assert f16_cache.distance(found, expected) < TOLERANCE[cache]
    exact = f16_cache.distance(found, forward.logits(config, tensors, IDS))
    assert exact < LOSS[cache]
    assert cache == "f32" or exact > 1e-5  # it did round


@pytest.mark.parametrize("cache", [name for name in _native.cache_types() if name != "f16"])
@pytest.mark.parametrize("model_type", ["gemma2", "gpt_oss", "smollm3"])
def test_windows_caps_and_sinks_go_with_every_cache(
    tmp_path: Path, model_type: str, cache: str
) -> None:
    path = architectures.save(tmp_path, model_type)
    expected = f16_cache.reference_logits(*architectures.read(path), IDS, cache=cache)
    found = engines.load(path, kv_cache=cache).logits(IDS)
    assert f16_cache.distance(found, expected) < TOLERANCE[cache]


def test_what_the_oracle_keeps_by_hand() -> None:
    assert kv_cache.values("q8_0", [127.0, -1.4, 0.6, 63.5]).tolist() == [127.0, -1.0, 1.0, 64.0]
    assert kv_cache.values("f16", [1e9, 2049.0]).tolist() == [65504.0, 2048.0]
    assert kv_cache.values("f32", [2049.0]).tolist() == [2049.0]


def test_turned_keys_and_queries_have_the_products_that_they_had() -> None:
    q, k = np.random.default_rng(0).integers(-9, 10, (2, 5, 32)).astype(np.float32)
    turned = (kv_cache.spread(q, 1 / 4) * kv_cache.spread(k, 1 / 8)).sum(axis=-1)
    assert turned.tolist() == (q * k).sum(axis=-1).tolist()  # small whole numbers: exact


def test_a_key_with_one_large_number_is_kept_better_than_its_step() -> None:
    """Without the turn every other number of the block would be off by half of 1/127 of it."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 200, 32)).astype(np.float32)
    q[:, 5] = 0
    k[:, 5] = 200
    # Queries as they are, turned: how these are rounded is another matter.
    _, rows = kv_cache.scored("q8_0", q, k)
    products = (kv_cache.spread(q, 1 / 4) * rows).sum(axis=-1)
    error = np.sqrt(np.mean((products - (q * k).sum(axis=-1)) ** 2))
    plain = 200 / 127 * np.sqrt(31 / 12)  # of 31 errors of a uniform step, times queries of one
    assert error < plain / 4
