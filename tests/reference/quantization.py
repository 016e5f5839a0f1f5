"""The block formats of weights and activations, from bytes to float32 and back.

Knows bytes and blocks; knows no files and no tensors' names. All formats are little-endian; a block
is 32 values along a row:

    q8_0  f16 d | int8 q[32]                        x = d * q                    34 bytes
    q4_0  f16 d | nibbles q[32]                     x = d * (q - 8)              18 bytes
    q4_1  f16 d | f16 m | nibbles q[32]             x = d * q + m                20 bytes

Byte j of the nibbles holds value j in its low half and value j + 16 in its high half.
Source: the reference quantizers of ggml, from their description; proven byte for byte in
test_reference.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BLOCK = 32
# Bytes per block; f32, f16 and bf16 count as blocks of one value.
BLOCK_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "q8_0": 34, "q4_0": 18, "q4_1": 20}
FORMATS = tuple(BLOCK_BYTES)

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def row_bytes(format: str, columns: int) -> int:
    """Count the bytes of a row of `columns` values."""
    return columns * BLOCK_BYTES[format] // (BLOCK if format.startswith("q") else 1)


def dequantize(format: str, data: bytes | Bytes, shape: Sequence[int]) -> Floats:
    """Read `shape` values, row-major, from the bytes of a format; float32."""
    raw = np.frombuffer(bytes(data), np.uint8)
    if format == "f32":
        values = raw.view("<f4").astype(np.float32)
    elif format == "f16":
        values = raw.view("<f2").astype(np.float32)
    elif format == "bf16":
        values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        codes, d, m = unpack(format, raw)  # (blocks, 32), (blocks,), (blocks,)
        # d * code is exact (11 + 8 bits), so only the addition of m rounds.
        values = d[:, None] * codes.astype(np.float32)
        if format == "q4_1":
            values = values + m[:, None]
    return values.reshape(tuple(shape))


class Blocks(NamedTuple):
    """What a quantized tensor says: x = d * codes + m, block by block."""

    codes: npt.NDArray[np.int32]  # (blocks, 32); signed for q8_0 and q4_0, 0..15 for q4_1
    d: Floats  # (blocks,)
    m: Floats  # (blocks,); 0 where the format has none


def unpack(format: str, data: bytes | Bytes) -> Blocks:
    """Take the blocks of q8_0, q4_0 or q4_1 apart, into integers and float32 scales."""
    blocks = np.frombuffer(bytes(data), np.uint8).reshape(-1, BLOCK_BYTES[format])
    d = half(blocks[:, 0:2])
    m = half(blocks[:, 2:4]) if format == "q4_1" else np.zeros_like(d)
    if format == "q8_0":
        return Blocks(np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.int32), d, m)
    nibbles = blocks[:, 4:] if format == "q4_1" else blocks[:, 2:]  # (blocks, 16)
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.int32)
    return Blocks(codes - 8 if format == "q4_0" else codes, d, m)


def half(two_bytes: Bytes) -> Floats:
    """(blocks, 2) bytes -> (blocks,) float32."""
    return np.ascontiguousarray(two_bytes).view("<f2")[:, 0].astype(np.float32)


def quantize(format: str, x: npt.ArrayLike) -> Bytes:
    """Write values (..., columns) in a format; 1-D bytes. Block formats need columns % 32 == 0."""
    values = np.ascontiguousarray(x, np.float32)
    if format == "f32":
        return values.astype("<f4").reshape(-1).view(np.uint8)
    if format == "f16":
        with np.errstate(over="ignore"):
            return values.astype("<f2").reshape(-1).view(np.uint8)
    if format == "bf16":
        return to_bf16(values).astype("<u2").reshape(-1).view(np.uint8)
    if values.shape[-1] % BLOCK:
        raise ValueError(f"{format} needs a multiple of {BLOCK} columns, not {values.shape[-1]}")
    blocks = values.reshape(-1, BLOCK)
    return {"q8_0": to_q8_0, "q4_0": to_q4_0, "q4_1": to_q4_1}[format](blocks).reshape(-1)


def to_bf16(x: Floats) -> npt.NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even; a NaN stays one, quiet."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet, rounded).astype(np.uint16)


def reciprocal(d: Floats) -> Floats:
    """1 / d in float32, and 0 for 0."""
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def to_q8_0(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 34). Rounds half away from zero, as C's `roundf`."""
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)  # (blocks, 1)
    scaled = (blocks * reciprocal(d)).astype(np.float64)  # float64: the next + 0.5 is exact
    codes = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8), codes.view(np.uint8)], axis=1)


def to_q4_0(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 18).

    The value of largest magnitude, with its sign, becomes code 0, i.e. -8; the first if two tie.
    The codes divide by the float32 d, before it is rounded to f16 for the file.
    """
    largest = np.abs(blocks).argmax(axis=1)[:, None]
    d = np.take_along_axis(blocks, largest, axis=1) / np.float32(-8)  # (blocks, 1)
    codes = np.minimum(15, np.floor(blocks * reciprocal(d) + np.float32(8.5))).astype(np.uint8)
    return np.concatenate([d.astype("<f2").view(np.uint8), pack_nibbles(codes)], axis=1)


def to_q4_1(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 20). The smallest value becomes code 0, the largest 15."""
    low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    d = (high - low) / np.float32(15)  # (blocks, 1)
    codes = np.floor((blocks - low) * reciprocal(d) + np.float32(0.5))
    codes = np.minimum(15, codes).astype(np.uint8)
    scales = np.concatenate([d, low], axis=1).astype("<f2").view(np.uint8)  # (blocks, 4)
    return np.concatenate([scales, pack_nibbles(codes)], axis=1)


def pack_nibbles(codes: Bytes) -> Bytes:
    """(blocks, 32) values of 0..15 -> (blocks, 16) bytes."""
    return codes[:, :16] | (codes[:, 16:] << 4)


class QuantizedActivations(NamedTuple):
    codes: npt.NDArray[np.int8]  # (tokens, columns), -127..127
    scales: Floats  # (tokens, columns / 32)
    sums: npt.NDArray[np.int32]  # (tokens, columns / 32): the sum of a block's codes


def quantize_activations(x: npt.ArrayLike) -> QuantizedActivations:
    """Round activations (tokens, columns) to int8, each 32 values by their own scale.

    scale = amax / 127; codes = rint(x * (127 / amax)), ties to even, in float32 throughout. Below
    an amax of 1e-30 the scale and the codes are 0, since 127 / amax would overflow.
    """
    values = np.ascontiguousarray(x, np.float32)
    blocks = values.reshape(*values.shape[:-1], -1, BLOCK)  # (tokens, columns / 32, 32)
    amax = np.abs(blocks).max(axis=-1)  # (tokens, columns / 32)
    alive = amax >= np.float32(1e-30)
    scales = np.where(alive, amax / np.float32(127), np.float32(0))
    inverse = np.divide(np.float32(127), amax, out=np.zeros_like(amax), where=alive)
    codes = np.clip(np.rint(blocks * inverse[..., None]), -127, 127).astype(np.int8)
    return QuantizedActivations(
        codes.reshape(values.shape), scales, codes.sum(axis=-1, dtype=np.int32)
    )


def round_activations(x: npt.ArrayLike) -> Floats:
    """Send activations (tokens, columns) through int8 and back; float32."""
    codes, scales, _ = quantize_activations(x)
    return codes.astype(np.float32) * np.repeat(scales, BLOCK, axis=-1)
