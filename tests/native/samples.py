"""Weights and activations, ordinary and hostile, and the cases `format-isa` they are tried in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from inferno import _native
from reference import quantization

ISAS: list[str] = _native.isas()
FORMATS: list[str] = [name for name, *_ in _native.formats()]
ENCODABLE: list[str] = [name for name, *_, encodes in _native.formats() if encodes]
FLOAT_FORMATS: list[str] = [name for name, kind, *_ in _native.formats() if kind == "f32"]
BLOCKS: dict[str, int] = {name: columns for name, _, columns, *_ in _native.formats()}
BLOCK_FORMATS: list[str] = [name for name in FORMATS if name not in FLOAT_FORMATS]

each_format_and_isa = pytest.mark.parametrize(
    ("format", "isa"),
    [pytest.param(format, isa, id=f"{format}-{isa}") for format in FORMATS for isa in ISAS],
)

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def columns_of(format: str) -> list[int]:
    """List numbers of columns: whole blocks, and for float formats around and between them too."""
    if block_of(format) > 32:
        return [256, 512, 768]
    return [32, 64, 96, 160] + ([1, 7, 31, 33, 172] if format in FLOAT_FORMATS else [])


def block_of(format: str) -> int:
    """Return the columns of a block."""
    return BLOCKS[format]


def whole(format: str, columns: int) -> int:
    """Return as many columns, or as many more as make blocks whole."""
    return -(-columns // BLOCKS[format]) * BLOCKS[format]


def floats(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def weights(format: str, seed: int, rows: int, columns: int) -> Bytes:
    """Store random weights (rows, columns)."""
    return quantization.quantize(format, floats(seed, rows, columns))


# Zeros, the smallest and the largest subnormal, the smallest normal, 0.1, 1 and the largest.
HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x2E66, 0xAE66, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF]


def hostile_weights(format: str, seed: int, rows: int, columns: int) -> Bytes:
    """Store every finite extreme a block can hold, in random order."""
    rng = np.random.default_rng(seed)
    count = rows * columns
    if format == "f32":
        extremes = [0.0, -0.0, 1e-45, -1e-38, 2.0**-126, 1e-20, 1.0, -1.0, 3.5, 1e10, -1e10]
        values = rng.choice(np.array(extremes, np.float32), count)
        return quantization.quantize("f32", values * rng.choice(np.float32([1, 0.7]), count))
    if format == "f16":
        magnitudes = rng.integers(0, 0x7C00, count)
        return (magnitudes | rng.integers(0, 2, count) << 15).astype("<u2").view(np.uint8)
    if format == "bf16":
        magnitudes = rng.integers(0, 0x5000, count)  # up to 2^33: no sum overflows
        return (magnitudes | rng.integers(0, 2, count) << 15).astype("<u2").view(np.uint8)
    count //= BLOCKS[format]
    blocks = rng.integers(0, 256, (count, quantization.BLOCK_BYTES[format]), np.uint8)
    # All nibbles 0, all 15, halves of each; as int8: 0, -1, 15, -16; and -128, 127.
    bytes = np.array([0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F, 0x81], np.uint8)
    blocks = np.where(rng.random((count, 1)) < 0.6, rng.choice(bytes, (count, 1)), blocks)
    for offset in quantization.HALVES[format]:
        halves = rng.choice(np.array(HALVES, "<u2"), (count, 1)).view(np.uint8)
        blocks[:, offset : offset + 2] = halves
    if format == "mxfp4":  # exponents: subnormal scales, the smallest normal one, 1/2, 1, large
        blocks[:, 0] = rng.choice(np.array([0, 1, 2, 3, 127, 128, 140], np.uint8), count)
    return blocks.reshape(-1)


def hostile_activations(seed: int, tokens: int, columns: int) -> Floats:
    """Fill each block of 32 with one extreme: ends of int8, ties, zeros, tiny and huge values."""
    rng = np.random.default_rng(seed)
    blocks = -(-columns // quantization.BLOCK)
    shape = (tokens, blocks, quantization.BLOCK)
    signs = rng.choice(np.float32([-1, 1]), shape)
    ordinary = rng.standard_normal(shape, np.float32)
    ties = rng.integers(-127, 127, shape).astype(np.float32) + np.float32(0.5)
    ties[..., 0] = 127
    limit = np.float32(1e-30)  # the smallest largest magnitude that is not taken for zero
    kinds = [
        np.full(shape, 127, np.float32),
        np.full(shape, -127, np.float32),
        signs * np.float32(127),
        signs * np.float32(0.3),
        ties,
        np.zeros(shape, np.float32),
        -np.zeros(shape, np.float32),
        np.clip(ordinary, -1, 1) * np.nextafter(limit, np.float32(0)),
        signs * limit,
        ordinary * np.float32(1e-40),
        ordinary * np.float32(1e-25),
        ordinary * np.float32(1e25),
        np.where(np.arange(32) == 17, np.float32(-1e6), ordinary),
        ordinary,
    ]
    kind = rng.integers(0, len(kinds), (tokens, blocks, 1))
    return np.choose(kind, kinds).reshape(tokens, -1)[:, :columns].copy()
