"""What a KV cache keeps of keys and values, and what scores make of queries; plain numpy.

    f16, f32   the nearest number of that type; beyond its largest, that
    q8_0       blocks of 32 dimensions: a scale d = amax / 127 as f16, codes = rint(x / d) as int8
               within -127 .. 127. Keys and queries are multiplied by a Hadamard matrix before, and
               by 1/8 and 1/4; the queries are then rounded as activations are

A last block that is not whole is filled up with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import quantization

Floats = npt.NDArray[np.float32]
TYPES = ("f16", "f32", "q8_0")

LARGEST = {"f16": 65504.0, "f32": float(np.finfo(np.float32).max), "q8_0": 127 * 65504.0 / 4}
BLOCK = 32


def in_blocks(x: Floats) -> Floats:
    """x: (..., head_dim) -> (..., blocks, 32)."""
    spare = -x.shape[-1] % BLOCK
    padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, spare)])
    return padded.reshape(*x.shape[:-1], -1, BLOCK)


def spread(blocks: Floats, scale: float) -> Floats:
    """Multiply blocks (..., 32) by a Hadamard matrix and `scale`, by sums and differences."""
    x, half = blocks * np.float32(scale), BLOCK // 2
    while half:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x, half = np.stack([a + b, a - b], axis=-2).reshape(blocks.shape), half // 2
    return x


def bounded(cache: str, x: Floats) -> Floats:
    return np.clip(x, -np.float32(LARGEST[cache]), np.float32(LARGEST[cache]))


def quantized_keys(k: Floats) -> tuple[Floats, Floats]:
    """k: (..., head_dim) -> scales (..., blocks, 1) and codes (..., blocks, 32), as float32."""
    return quantized(spread(in_blocks(bounded("q8_0", k)), 1 / 8))


def quantized_values(v: Floats) -> tuple[Floats, Floats]:
    """v: (..., head_dim) -> scales (..., blocks, 1) and codes (..., blocks, 32), as float32."""
    return quantized(in_blocks(bounded("q8_0", v)))


def quantized(blocks: Floats) -> tuple[Floats, Floats]:
    """blocks: (..., 32) -> scales (..., 1) and codes (..., 32), as float32."""
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    scales = (amax / np.float32(127)).astype(np.float16).astype(np.float32)
    codes = np.rint(blocks * quantization.reciprocal(scales)) + np.float32(0)  # codes have no -0
    return scales, np.clip(codes, -127, 127)


def quantized_queries(q: Floats) -> tuple[Floats, Floats]:
    """q: (..., head_dim) -> scales (..., blocks, 1) and codes (..., blocks, 32), as float32."""
    blocks = spread(in_blocks(q), 1 / 4)
    found = quantization.quantize_activations(blocks.reshape(-1, BLOCK))
    scales = found.scales.reshape(*blocks.shape[:-1], 1)
    return scales, found.codes.astype(np.float32).reshape(blocks.shape)


def _joined(scales: Floats, codes: Floats) -> Floats:
    return (scales * codes).reshape(*codes.shape[:-2], -1)


def values(cache: str, v: Any) -> Floats:
    """Return what the cache keeps of values (..., head_dim)."""
    v = np.asarray(v, np.float32)
    if cache == "q8_0":
        return _joined(*quantized_values(v))[..., : v.shape[-1]]  # 19 bits: exact
    v = bounded(cache, v)
    return v.astype(np.float16).astype(np.float32) if cache == "f16" else v


def scored(cache: str, q: Floats, k: Floats) -> tuple[Floats, Floats]:
    """Return queries and keys (..., dimensions) of which scores are the products."""
    if cache == "q8_0":
        return _joined(*quantized_queries(q)), _joined(*quantized_keys(k))
    return q, values(cache, k)
