"""What a KV cache keeps of keys and values, and what scores make of queries; plain numpy.

    f16, f32   the nearest number of that type; beyond its largest, that
    q8_0       blocks of 32 dimensions: a scale d = amax / 127 as f16, codes = rint(x / d) as int8
               within -127 .. 127; a query in blocks of int8 as activations are

A last block that is not whole is filled up with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import quantization

Floats = npt.NDArray[np.float32]
TYPES = ("f16", "f32", "q8_0")

LARGEST = {"f16": 65504.0, "f32": float(np.finfo(np.float32).max), "q8_0": 127 * 65504.0}
BLOCK = 32


def in_blocks(x: Floats) -> Floats:
    """x: (..., head_dim) -> (..., blocks, 32)."""
    spare = -x.shape[-1] % BLOCK
    padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, spare)])
    return padded.reshape(*x.shape[:-1], -1, BLOCK)


def quantized(x: Floats) -> tuple[Floats, Floats]:
    """x: (..., head_dim) -> scales (..., blocks, 1) and codes (..., blocks, 32), as float32."""
    blocks = in_blocks(np.clip(x, -LARGEST["q8_0"], LARGEST["q8_0"]).astype(np.float32))
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    scales = (amax / np.float32(127)).astype(np.float16).astype(np.float32)
    codes = np.rint(blocks * quantization.reciprocal(scales)) + np.float32(0)  # codes have no -0
    return scales, np.clip(codes, -127, 127)


def quantized_queries(q: Floats) -> tuple[Floats, Floats]:
    """q: (..., head_dim) -> scales (..., blocks, 1) and codes (..., blocks, 32), as float32."""
    found = quantization.quantize_activations(in_blocks(q).reshape(-1, BLOCK))
    blocks = in_blocks(q).shape
    scales = found.scales.reshape(*blocks[:-1], 1)
    return scales, found.codes.astype(np.float32).reshape(blocks)


def _joined(parts: tuple[Floats, Floats], x: Floats) -> Floats:
    scales, codes = parts
    return (scales * codes).reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]  # 19 bits: exact


def kept(cache: str, x: Any) -> Floats:
    """Return what the cache keeps of keys or values (..., head_dim)."""
    x = np.asarray(x, np.float32)
    if cache == "q8_0":
        return _joined(quantized(x), x)
    bounded = np.clip(x, -np.float32(LARGEST[cache]), np.float32(LARGEST[cache]))
    return bounded.astype(np.float16).astype(np.float32) if cache == "f16" else bounded


def asked(cache: str, q: Floats) -> Floats:
    """Return the queries (..., head_dim) that keys are scored with."""
    return _joined(quantized_queries(q), q) if cache == "q8_0" else q
