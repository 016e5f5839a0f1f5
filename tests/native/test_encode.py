"""Floats to stored blocks, as files are written. The oracle is numpy's, in tests/reference."""

from __future__ import annotations

import numpy as np
import pytest

from inferno import _native
from inferno.errors import NativeError
from reference import quantization

ENCODES = [name for name, *_, encodes in _native.formats() if encodes]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("format", ENCODES)
def test_rows_are_encoded_as_the_oracle_has_them(format: str, source: str, threads: int) -> None:
    generator = np.random.default_rng(0)
    rows, columns = 13, 96
    values = generator.standard_normal((rows, columns), np.float32)
    values[3] = 0
    stored = quantization.quantize(source, values)
    exact = quantization.dequantize(source, stored, values.shape)
    encoded = _native.encode_rows(_native.ThreadPool(threads), format, source, stored, columns)
    assert encoded.tobytes() == quantization.quantize(format, exact).tobytes()


@pytest.mark.parametrize("format", ["f32", "f16", "bf16"])
def test_rows_of_floats_need_not_be_whole_blocks(format: str) -> None:
    values = np.random.default_rng(1).standard_normal((5, 7), np.float32)
    stored = quantization.quantize("f32", values)
    encoded = _native.encode_rows(_native.ThreadPool(2), format, "f32", stored, 7)
    assert encoded.tobytes() == quantization.quantize(format, values).tobytes()


@pytest.mark.parametrize(
    ("format", "source", "size", "columns"),
    [
        ("q8_0", "f32", 4 * 33, 33),
        ("q8_0", "f32", 4 * 32 + 1, 32),
        ("q8_0", "f32", 0, 32),
        ("q8_0", "f32", 128, 0),
        ("q8_0", "f32", 128, -32),
        ("q4_1", "f32", 128, 32),
        ("f32", "q8_0", 34, 32),
    ],
)
def test_what_cannot_be_encoded_is_an_error(
    format: str, source: str, size: int, columns: int
) -> None:
    data = np.zeros(size, np.uint8)
    with pytest.raises(NativeError):
        _native.encode_rows(_native.ThreadPool(1), format, source, data, columns)
