"""The forward pass of Llama and Qwen2 in plain float32 numpy.

Knows tensors under their Hugging Face names and a config whose attributes are Hugging Face keys;
knows no files, no quantized formats, no cache, no engine. Slow where it can be clear instead.

Sources: Touvron et al. 2023 (Llama), Yang et al. 2024 (Qwen2), Su et al. 2021 (RoPE), Zhang and
Sennrich 2019 (RMSNorm), Shazeer 2020 (SwiGLU), Ainslie et al. 2023 (GQA); names as in transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Tensors = Mapping[str, Array]
Activations = Callable[[Array], Array]


def logits(
    config: Any, tensors: Tensors, ids: Sequence[int], activations: Activations | None = None
) -> Array:
    """Compute the logits of every position: (n, vocab_size) float32.

    `activations`, if given, is applied to the input (n, columns) of every matrix product, for
    instance `quantization.round_activations`: what int8 activations alone do to the result.
    """
    tied = "lm_head.weight" not in tensors
    head = tensors["model.embed_tokens.weight" if tied else "lm_head.weight"]  # (vocab, hidden)
    x = hidden_states(config, tensors, ids, activations)  # (n, hidden)
    return (activations(x) if activations else x) @ head.T


def hidden_states(
    config: Any, tensors: Tensors, ids: Sequence[int], activations: Activations | None = None
) -> Array:
    """Compute what the head sees, after the final norm: (n, hidden_size) float32."""
    n = len(ids)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = head_dim_of(config)
    cos, sin = rotation(config, np.arange(n))  # (n, head_dim / 2) each
    # Position i must not see j > i. -inf leaves exactly 0 behind the softmax.
    mask = np.triu(np.full((n, n), -np.inf, np.float32), 1)  # (n, n)

    def linear(x: Array, name: str) -> Array:
        """x: (n, columns) -> (n, rows). The bias is there if the checkpoint holds one."""
        y = (activations(x) if activations else x) @ tensors[f"{name}.weight"].T
        bias = tensors.get(f"{name}.bias")
        return y if bias is None else y + bias

    x = tensors["model.embed_tokens.weight"][np.asarray(ids, np.int64)]  # (n, hidden)
    for layer in range(config.num_hidden_layers):
        at = f"model.layers.{layer}"
        y = rms_norm(x, tensors[f"{at}.input_layernorm.weight"], config.rms_norm_eps)
        q = linear(y, f"{at}.self_attn.q_proj").reshape(n, heads, head_dim)
        k = linear(y, f"{at}.self_attn.k_proj").reshape(n, kv_heads, head_dim)
        v = linear(y, f"{at}.self_attn.v_proj").reshape(n, kv_heads, head_dim)
        y = attention(rotate(q, cos, sin), rotate(k, cos, sin), v, mask)  # (n, heads, head_dim)
        x = x + linear(y.reshape(n, heads * head_dim), f"{at}.self_attn.o_proj")

        y = rms_norm(x, tensors[f"{at}.post_attention_layernorm.weight"], config.rms_norm_eps)
        gate = linear(y, f"{at}.mlp.gate_proj")  # (n, intermediate)
        up = linear(y, f"{at}.mlp.up_proj")  # (n, intermediate)
        x = x + linear(silu(gate) * up, f"{at}.mlp.down_proj")
    return rms_norm(x, tensors["model.norm.weight"], config.rms_norm_eps)


def greedy(config: Any, tensors: Tensors, ids: Sequence[int], num_tokens: int) -> list[int]:
    """Continue `ids` by the most likely token, `num_tokens` times; return prompt and continuation.

    Every step runs the whole sequence again: no cache that could be wrong.
    """
    sequence = list(ids)
    for _ in range(num_tokens):
        sequence.append(int(logits(config, tensors, sequence)[-1].argmax()))
    return sequence


def log_probabilities(scores: Array) -> npt.NDArray[np.float64]:
    """Turn logits (n, vocab) into log probabilities (n, vocab), in float64."""
    shifted = scores.astype(np.float64) - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x: (n, hidden), weight: (hidden,)."""
    variance = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)  # (n, 1)
    return weight * (x / np.sqrt(variance + np.float32(eps)))


def silu(x: Array) -> Array:
    # exp of a large positive number is inf and the quotient then 0, which is right.
    with np.errstate(over="ignore"):
        return x / (np.float32(1) + np.exp(-x))


def attention(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """q: (n, heads, head_dim), k and v: (n, kv_heads, head_dim), mask: (n, n) -> like q."""
    _, heads, head_dim = q.shape
    group = heads // k.shape[1]  # query heads that share one key and value head
    k = np.repeat(k, group, axis=1).transpose(1, 2, 0)  # (heads, head_dim, n)
    v = np.repeat(v, group, axis=1).transpose(1, 0, 2)  # (heads, n, head_dim)
    scores = q.transpose(1, 0, 2) @ k * np.float32(1 / math.sqrt(head_dim)) + mask  # (heads, n, n)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True, dtype=np.float32)
    return np.ascontiguousarray((weights @ v).transpose(1, 0, 2))


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the pairs (i, i + head_dim / 2) of x (n, heads, head_dim); see `rotation`."""
    first, second = np.split(x, 2, axis=-1)  # (n, heads, head_dim / 2) each
    cos, sin = cos[:, None, :], sin[:, None, :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rotation(config: Any, positions: npt.ArrayLike) -> tuple[Array, Array]:
    """Tabulate cos and sin of every (position, frequency): (n, head_dim / 2) float32 each."""
    angles = np.asarray(positions, np.float32)[:, None] * inverse_frequencies(config)[None, :]
    return np.cos(angles), np.sin(angles)


def inverse_frequencies(config: Any) -> Array:
    """theta ** (-2 i / head_dim), scaled as `rope_scaling` says: (head_dim / 2,) float32."""
    theta, scaling = rope_parameters(config)
    head_dim = head_dim_of(config)
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies = np.float32(1) / np.power(np.float32(theta), exponents, dtype=np.float32)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / np.float32(scaling["factor"])
    if kind == "llama3":
        # Long waves are slowed by the factor, short ones kept, those between interpolated.
        factor, low, high, trained = (
            float(scaling[key])
            for key in (
                "factor",
                "low_freq_factor",
                "high_freq_factor",
                "original_max_position_embeddings",
            )
        )
        wavelengths = 2 * np.pi / frequencies.astype(np.float64)
        smooth = np.clip((trained / wavelengths - low) / (high - low), 0, 1)
        return ((1 - smooth) * frequencies / factor + smooth * frequencies).astype(np.float32)
    raise NotImplementedError(f"the oracle knows no rope scaling {kind!r}")


def rope_parameters(config: Any) -> tuple[float, Mapping[str, Any]]:
    """Read base and scaling from a config of either age: keys at the top, or `rope_parameters`."""
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    scaling = scaling or {}
    theta = scaling.get("rope_theta", getattr(config, "rope_theta", None))
    if theta is None:
        raise ValueError("the config names no rope_theta")
    return float(theta), scaling


def head_dim_of(config: Any) -> int:
    head_dim = getattr(config, "head_dim", None)
    return int(head_dim or config.hidden_size // config.num_attention_heads)


def interleaved(weight: Array, heads: int) -> Array:
    """Reorder the rows of q_proj or k_proj so that the rotated pairs are neighbours.

    (heads * head_dim, ...) -> same shape. Row i of a head's first half goes to 2 i, of its second
    half to 2 i + 1: the order of GGUF files of architecture `llama`, and of Llama's first release.
    """
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])  # (heads, 2, head_dim / 2, ...)
    return np.ascontiguousarray(np.stack([halves[:, 0], halves[:, 1]], axis=2)).reshape(
        weight.shape
    )


def half_split(weight: Array, heads: int) -> Array:
    """Undo `interleaved`: neighbours become (i, i + head_dim / 2), as transformers expects."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])  # (heads, head_dim / 2, 2, ...)
    return np.ascontiguousarray(np.stack([pairs[:, :, 0], pairs[:, :, 1]], axis=1)).reshape(
        weight.shape
    )
