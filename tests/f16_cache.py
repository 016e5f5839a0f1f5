"""The oracles with keys and values rounded as the engine's cache holds them: to float16, or as
asked.

Without that, a float32 oracle differs by a few in 10,000, where a wrong scale could hide.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reference import forward, kv_cache
from reference.forward import Array, Tensors


def reference_logits(
    config: Any,
    tensors: Tensors,
    ids: Sequence[int],
    activations: forward.Activations | None = None,
    *,
    cache: str = "f16",
) -> Array:
    """Ask the numpy reference for the logits of every position: (n, vocab_size) float32."""
    attention = forward.attention

    def with_cache(q: Array, k: Array, v: Array, mask: Array, **options: Any) -> Array:
        q, k = kv_cache.scored(cache, q, k)
        return attention(q, k, kv_cache.values(cache, v), mask, **options)

    forward.attention = with_cache
    try:
        return forward.logits(config, tensors, ids, activations)
    finally:
        forward.attention = attention


def transformers_logits(path: Path, ids: Sequence[int], **options: Any) -> Array:
    """Ask transformers for the logits of every position: (n, vocab_size) float32.

    `options` are those of `from_pretrained`.
    """
    import torch
    from transformers import AttentionInterface, AutoModelForCausalLM
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    def attention(module: Any, q: Any, k: Any, v: Any, mask: Any, **options: Any) -> Any:
        k, v = k.half().float(), v.half().float()
        # Each family has its own: some cap the scores, some have sinks.
        eager = sys.modules[type(module).__module__].eager_attention_forward
        return eager(module, q, k, v, mask, **options)

    name = "eager_with_f16_cache"
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, eager_mask)
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation=name, **options
    )
    with torch.inference_mode():
        return np.array(model(torch.tensor([list(ids)])).logits[0].numpy())


def distance(actual: Array, expected: Array) -> float:
    """Measure the error relative to what is expected, by the norm of all logits."""
    assert actual.shape == expected.shape
    error = actual.astype(np.float64) - expected
    return float(np.linalg.norm(error) / np.linalg.norm(expected.astype(np.float64)))
