"""The truth of each operation, in float64 or in exact integers.

Knows arrays only. What a float32 kernel returns is judged by its distance from these, in `ulps`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import quantization

Doubles = npt.NDArray[np.float64]


def doubles(x: npt.ArrayLike) -> Doubles:
    return np.asarray(x, np.float64)


def exp(x: npt.ArrayLike) -> Doubles:
    return np.exp(doubles(x))


def silu(x: npt.ArrayLike) -> Doubles:
    x = doubles(x)
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def gelu(x: npt.ArrayLike) -> Doubles:
    """The approximation by tanh, which models are trained with."""
    x = doubles(x)
    with np.errstate(over="ignore"):  # x (1 + tanh u) / 2, without its cancellation
        return x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def clamped_swiglu(gate: npt.ArrayLike, up: npt.ArrayLike, limit: float) -> Doubles:
    gate, up = np.minimum(doubles(gate), limit), np.clip(doubles(up), -limit, limit)
    with np.errstate(over="ignore"):
        return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)


def softcap(x: npt.ArrayLike, limit: float) -> Doubles:
    return limit * np.tanh(doubles(x) / limit)


def swiglu(gate: npt.ArrayLike, up: npt.ArrayLike) -> Doubles:
    return silu(gate) * doubles(up)


def softmax(x: npt.ArrayLike) -> Doubles:
    """Along the last axis."""
    x = doubles(x)
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def rms_norm(x: npt.ArrayLike, weight: npt.ArrayLike, eps: float) -> Doubles:
    """x: (tokens, hidden), weight: (hidden,)."""
    x = doubles(x)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * doubles(weight)


def rope(
    x: npt.ArrayLike, positions: npt.ArrayLike, theta: float, *, interleaved: bool = False
) -> Doubles:
    """Rotate x (tokens, heads, head_dim) to its positions (tokens,).

    Pairs are (i, i + head_dim / 2), or neighbours (2 i, 2 i + 1) if `interleaved`. The angles come
    from float64 frequencies; transformers rounds both to float32, which shows at large positions.
    """
    x = doubles(x)
    half = x.shape[-1] // 2
    angles = doubles(positions)[:, None] * doubles(theta) ** (-np.arange(half) / half)
    turn = np.exp(1j * angles)[:, None, :]  # (tokens, 1, head_dim / 2)
    if interleaved:
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
    turned = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([turned.real, turned.imag], axis=-1)


def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    scale: float | None = None,
    *,
    window: int = 0,
    limit: float = 0.0,
    sinks: npt.ArrayLike | None = None,
) -> Doubles:
    """Attend causally: q (tokens, heads, head_dim), k and v (length, kv_heads, head_dim) -> like q.

    The queries are the last `tokens` of `length` positions. `scale` is 1 / sqrt(head_dim) unless
    given. Query head h reads key and value head h // (heads / kv_heads). Of the positions, the
    last `window` count, if it is not 0; `limit` caps scores, if it is not 0. `sinks`: (heads,)
    scores without a value.
    """
    q, k, v = doubles(q), doubles(k), doubles(v)
    tokens, heads, head_dim = q.shape
    length, kv_heads, _ = k.shape
    scale = head_dim**-0.5 if scale is None else scale
    out = np.zeros_like(q)
    for token in range(tokens):
        visible = length - tokens + token + 1
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            first = max(0, visible - window) if window else 0
            scores = k[first:visible, kv_head] @ q[token, head] * scale  # (visible - first,)
            scores = softcap(scores, limit) if limit else scores
            more = [] if sinks is None else [doubles(sinks)[head]]
            weights = softmax(np.append(scores, more))[: len(scores)]
            out[token, head] = weights @ v[first:visible, kv_head]
    return out


def block_dots(
    codes: npt.ArrayLike, activations: npt.ArrayLike, block: int = quantization.BLOCK
) -> npt.NDArray[np.int64]:
    """Multiply integers block by block, exactly: (tokens, rows, columns / block).

    codes: (rows, columns) of weights, activations: (tokens, columns).
    """
    w = np.asarray(codes, np.int64)
    x = np.asarray(activations, np.int64)
    w = w.reshape(len(w), -1, block)  # (rows, columns / block, block)
    x = x.reshape(len(x), -1, block)  # (tokens, columns / block, block)
    return np.einsum("tbi,rbi->trb", x, w)


def matmul(weight: npt.ArrayLike, x: npt.ArrayLike) -> Doubles:
    """weight: (rows, columns), x: (tokens, columns) -> (tokens, rows)."""
    return doubles(x) @ doubles(weight).T


class BlockSums(NamedTuple):
    """The integers of a product of stored weights (rows, columns) and int8 activations, exact.

    A block adds d * scale * weighted + m * scale * offsets to an output.
    """

    weighted: npt.NDArray[np.int64]  # (tokens, rows, blocks): sum of sub-scale * code * q
    offsets: npt.NDArray[np.int64]  # (tokens, rows, blocks): sum of sub-minimum * q
    d: quantization.Floats  # (rows, blocks)
    m: quantization.Floats  # (rows, blocks)
    scales: quantization.Floats  # (tokens, blocks), of the activations
    has_minima: bool


def block_sums(
    format: str, data: bytes | quantization.Bytes, rows: int, x: npt.ArrayLike
) -> BlockSums:
    """Round activations x (tokens, columns) as the format wants them, and multiply integers."""
    block = quantization.COLUMNS[format]
    q, scales, _ = quantization.quantize_activations(x, block)
    b = quantization.unpack(format, data)
    subs = b.scales.shape[1]
    sub = block // subs

    def join(values: npt.NDArray[np.int64], factors: quantization.Integers) -> Any:
        """(tokens, rows or 1, all sub-blocks) times (rows, all sub-blocks), summed a block."""
        products = values * factors.reshape(rows, -1)
        return products.reshape(*products.shape[:2], -1, subs).sum(axis=-1)

    weighted = join(block_dots(b.codes.reshape(rows, -1), q, sub), b.scales)
    sums = q.reshape(len(q), 1, -1, sub).sum(axis=-1, dtype=np.int64)
    d, m = b.d.reshape(rows, -1), b.m.reshape(rows, -1)
    return BlockSums(weighted, join(sums, b.minima), d, m, scales, b.has_minima)


def quantized_matmul(
    format: str, data: bytes | quantization.Bytes, rows: int, x: npt.ArrayLike
) -> Doubles:
    """Multiply stored weights (rows, columns) with int8 activations of x (tokens, columns).

    The blocks' products are exact integers; scales and sums over blocks are float64. What differs
    from a kernel's float32 result is that kernel's rounding alone, not the activations' rounding.
    """
    b = block_sums(format, data, rows, x)
    scales = doubles(b.scales)
    products = np.einsum("trb,rb,tb->tr", b.weighted, doubles(b.d), scales)
    return products + np.einsum("trb,rb,tb->tr", b.offsets, doubles(b.m), scales)


def ulps(actual: npt.ArrayLike, truth: npt.ArrayLike) -> Doubles:
    """Measure |actual - truth| in units of the last place of the float32 next to the truth."""
    truth = doubles(truth)
    unit = np.spacing(np.maximum(np.abs(truth), np.finfo(np.float32).tiny).astype(np.float32))
    return np.abs(doubles(actual) - truth) / doubles(unit)
