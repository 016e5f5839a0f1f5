"""The forward pass of every architecture in plain float32 numpy.

Knows tensors under their Hugging Face names and a config whose attributes are Hugging Face keys;
knows no files, no quantized formats, no cache, no engine. Slow where it can be clear instead.

What a checkpoint has tensors for is computed: a norm, a bias, a sink, experts.

Sources: Touvron et al. 2023 (Llama), Yang et al. 2024 (Qwen2), Su et al. 2021 (RoPE), Zhang and
Sennrich 2019 (RMSNorm), Shazeer 2020 (SwiGLU), Ainslie et al. 2023 (GQA), and those that the files
of the architectures name; names as in transformers.
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
    scores = (activations(x) if activations else x) @ head.T
    scores = scores / np.float32(getattr(config, "logits_scaling", 1.0))
    limit = getattr(config, "final_logit_softcapping", None)
    return softcap(scores, limit) if limit else scores


def hidden_states(
    config: Any, tensors: Tensors, ids: Sequence[int], activations: Activations | None = None
) -> Array:
    """Compute what the head sees, after the final norm: (n, hidden_size) float32."""
    n = len(ids)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = head_dim_of(config)
    gemma = config.model_type.startswith("gemma")
    eps = config.rms_norm_eps
    residual = np.float32(getattr(config, "residual_multiplier", 1.0))

    def linear(x: Array, name: str, rounds: bool = True) -> Array:
        """x: (n, columns) -> (n, rows). The bias is there if the checkpoint holds one."""
        y = (activations(x) if activations and rounds else x) @ tensors[f"{name}.weight"].T
        bias = tensors.get(f"{name}.bias")
        return y if bias is None else y + bias

    def norm(x: Array, name: str) -> Array:
        """Gemma stores weights as their distance from 1. A norm that is not there does nothing."""
        weight = tensors.get(f"{name}.weight")
        return x if weight is None else rms_norm(x, weight + np.float32(gemma), eps)

    def norm_heads(x: Array, name: str, count: int) -> Array:
        """Normalize (n, count * head_dim) whole, or by heads if that is the weight's size."""
        weight = tensors.get(f"{name}.weight")
        if weight is not None and len(weight) == head_dim:
            return norm(x.reshape(n, count, head_dim), name)
        return norm(x, name).reshape(n, count, head_dim)

    def attend(x: Array, at: str, layer: int) -> Array:
        if f"{at}.qkv_proj.weight" in tensors:
            sizes = [heads * head_dim, (heads + kv_heads) * head_dim]
            q, k, v = np.split(linear(x, f"{at}.qkv_proj"), sizes, axis=-1)
        else:
            q, k, v = (linear(x, f"{at}.{name}_proj") for name in "qkv")
        q, k = norm_heads(q, f"{at}.q_norm", heads), norm_heads(k, f"{at}.k_norm", kv_heads)
        no_rope = getattr(config, "no_rope_layers", None)
        if not no_rope or no_rope[layer]:
            cos, sin = rotation(config, np.arange(n), layer)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        v = v.reshape(n, kv_heads, head_dim)
        y = attention(
            q,
            k,
            v,
            visible(config, n, layer),
            scale=score_scale(config),
            limit=getattr(config, "attn_logit_softcapping", None) or 0.0,
            sinks=tensors.get(f"{at}.sinks"),
        )
        return linear(y.reshape(n, heads * head_dim), f"{at}.o_proj")

    def gated(x: Array, gate: str, up: str, down: str) -> Array:
        return linear(activate(config, linear(x, gate), linear(x, up)), down)

    def mlp(x: Array, at: str) -> Array:
        """One MLP, or the weighted sum of those that a router chooses."""
        if f"{at}.mlp.gate_up_proj.weight" in tensors:
            gate, up = np.split(linear(x, f"{at}.mlp.gate_up_proj"), 2, axis=-1)
            return linear(activate(config, gate, up), f"{at}.mlp.down_proj")
        if f"{at}.mlp.gate_proj.weight" in tensors:
            return gated(x, *(f"{at}.mlp.{name}_proj" for name in ("gate", "up", "down")))
        routers = (f"{at}.{name}" for name in ("block_sparse_moe.gate", "mlp.gate", "mlp.router"))
        router = next(name for name in routers if f"{name}.weight" in tensors)
        weights = route(config, linear(x, router, rounds=False))  # (n, experts)
        mixtral = "block_sparse_moe" in router
        names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        y = np.zeros_like(x)
        for e in range(weights.shape[1]):
            stem = f"{router.rsplit('.', 1)[0]}.experts.{e}"
            y += weights[:, e : e + 1] * gated(x, *(f"{stem}.{name}" for name in names))
        return y

    x = tensors["model.embed_tokens.weight"][np.asarray(ids, np.int64)]  # (n, hidden)
    x = x * np.float32(getattr(config, "embedding_multiplier", 1.0))
    x = x * np.float32(math.sqrt(config.hidden_size) if gemma else 1.0)
    for layer in range(config.num_hidden_layers):
        at = f"model.layers.{layer}"
        y = attend(norm(x, f"{at}.input_layernorm"), f"{at}.self_attn", layer)
        if f"{at}.post_feedforward_layernorm.weight" in tensors:  # Gemma 2 and 3, OLMo 2
            x = x + norm(y, f"{at}.post_attention_layernorm")
            y = mlp(norm(x, f"{at}.pre_feedforward_layernorm"), at)
            x = x + norm(y, f"{at}.post_feedforward_layernorm")
        else:
            x = x + y * residual
            x = x + mlp(norm(x, f"{at}.post_attention_layernorm"), at) * residual
    return norm(x, "model.norm")


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


def softcap(x: Array, limit: float) -> Array:
    return np.float32(limit) * np.tanh(x / np.float32(limit))


def activate(config: Any, gate: Array, up: Array) -> Array:
    if config.model_type == "gpt_oss":
        limit = np.float32(config.swiglu_limit)
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return gate / (1 + np.exp(np.float32(-1.702) * gate)) * (up + 1)
    if config.model_type.startswith("gemma"):
        inner = np.float32(math.sqrt(2 / math.pi)) * (gate + np.float32(0.044715) * gate**3)
        return np.float32(0.5) * gate * (1 + np.tanh(inner)) * up
    return silu(gate) * up


def route(config: Any, scores: Array) -> Array:
    """Return the weight of every expert, 0 for those not chosen: (n, experts)."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : config.num_experts_per_tok]
    kept = np.zeros_like(weights)
    np.put_along_axis(kept, chosen, np.take_along_axis(weights, chosen, axis=-1), axis=-1)
    if config.model_type == "qwen3_moe" and not config.norm_topk_prob:
        return kept
    return kept / kept.sum(axis=-1, keepdims=True)


def is_sliding(config: Any, layer: int) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return bool(kinds[layer] == "sliding_attention")
    return bool(getattr(config, "sliding_window", None))


def visible(config: Any, n: int, layer: int) -> Array:
    """Return what is added to scores (n, n): where i sees no j, -inf, which the softmax makes 0."""
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    hidden = j > i
    if is_sliding(config, layer):
        hidden = hidden | (j <= i - config.sliding_window)
    return np.where(hidden, np.float32(-np.inf), np.float32(0))


def score_scale(config: Any) -> float:
    if config.model_type == "granite":
        return float(config.attention_multiplier)
    return float((getattr(config, "query_pre_attn_scalar", None) or head_dim_of(config)) ** -0.5)


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    *,
    scale: float,
    limit: float = 0.0,
    sinks: Array | None = None,
) -> Array:
    """q: (n, heads, head_dim), k and v: (n, kv_heads, head_dim), mask: (n, n) -> like q."""
    group = q.shape[1] // k.shape[1]  # query heads that share one key and value head
    k = np.repeat(k, group, axis=1).transpose(1, 2, 0)  # (heads, head_dim, n)
    v = np.repeat(v, group, axis=1).transpose(1, 0, 2)  # (heads, n, head_dim)
    scores = q.transpose(1, 0, 2) @ k * np.float32(scale)  # (heads, n, n)
    scores = (softcap(scores, limit) if limit else scores) + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True, dtype=np.float32)
    if sinks is not None:  # a score each that takes part without a value
        total = total + np.exp(sinks[:, None, None] - scores.max(axis=-1, keepdims=True))
    return np.ascontiguousarray((weights / total @ v).transpose(1, 0, 2))


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the pairs (i, i + p) of x (n, heads, head_dim), of which cos and sin have p."""
    pairs = cos.shape[-1]
    first, second, rest = np.split(x, [pairs, 2 * pairs], axis=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def rotation(config: Any, positions: npt.ArrayLike, layer: int = 0) -> tuple[Array, Array]:
    """Tabulate cos and sin of every (position, frequency): (n, pairs) float32 each."""
    frequencies = inverse_frequencies(config, layer)
    angles = np.asarray(positions, np.float32)[:, None] * frequencies[None, :]
    _, scaling = rope_parameters(config, layer)
    factor = np.float32(1.0)
    if scaling.get("rope_type", scaling.get("type")) == "yarn":
        factor = np.float32(0.1 * math.log(scaling["factor"]) + 1.0)  # of the scores' sharpness
    return np.cos(angles) * factor, np.sin(angles) * factor


def inverse_frequencies(config: Any, layer: int = 0) -> Array:
    """theta ** (-2 i / d), scaled as `rope_scaling` says: (d / 2,) float32, d columns rotated."""
    theta, scaling = rope_parameters(config, layer)
    dim = int(head_dim_of(config) * scaling.get("partial_rotary_factor", 1.0))
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
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
    if kind == "yarn":
        # The same, by the pairs that turn 32 and 1 times within the original context.
        trained = scaling["original_max_position_embeddings"]
        low, high = (
            dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))
            for turns in (scaling.get("beta_fast", 32), scaling.get("beta_slow", 1))
        )
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        slowed = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        scaled = frequencies / scaling["factor"] * slowed + frequencies * (1 - slowed)
        return scaled.astype(np.float32)
    raise NotImplementedError(f"the oracle knows no rope scaling {kind!r}")


def rope_parameters(config: Any, layer: int = 0) -> tuple[float, Mapping[str, Any]]:
    """Read base and scaling from a config of either age: keys at the top, or `rope_parameters`."""
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    scaling = scaling or {}
    if "sliding_attention" in scaling:
        kind = "sliding_attention" if is_sliding(config, layer) else "full_attention"
        scaling = scaling[kind]
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
