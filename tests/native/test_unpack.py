"""Weights packed into tiles and read back: the rows, their order, and conversion on the way in."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from inferno import _native
from inferno.errors import NativeError
from reference import quantization

from . import samples
from .float32 import Floats, assert_same_bits
from .samples import BLOCK_FORMATS, ENCODABLE, FLOAT_FORMATS, FORMATS, ISAS, each_format_and_isa

testing = _native.testing

BLOCK = quantization.BLOCK
QUANTIZED = [name for name in ENCODABLE if name not in FLOAT_FORMATS]
# Those of 256 columns it only reads.
GGUF = {n: gguf.GGMLQuantizationType[n.upper()] for n in QUANTIZED if samples.block_of(n) == BLOCK}
each_isa = pytest.mark.parametrize("isa", ISAS)
CONVERSIONS = pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(source, target, id=f"{source}-to-{target}")
        for source in FORMATS
        for target in ENCODABLE
        if source != target
    ],
)


def pad(x: Floats, columns: int = BLOCK) -> Floats:
    return np.pad(x, ((0, 0), (0, -x.shape[1] % columns)))


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 31, 33, 100])
@each_format_and_isa
def test_stored_weights_come_back_bit_for_bit(pool, format: str, isa: str, rows: int) -> None:
    for columns in samples.columns_of(format):
        data = samples.hostile_weights(format, rows, rows, columns)
        expected = pad(quantization.dequantize(format, data, (rows, columns)))
        assert_same_bits(testing.unpack(isa, pool, format, format, data, rows, columns), expected)


def values_of(source: str, seed: int, rows: int, columns: int) -> tuple[samples.Bytes, Floats]:
    """Store random weights with a few special blocks; returns the bytes and what they say."""
    x = samples.floats(seed, rows, columns)
    if columns >= 4 * BLOCK:
        x[0, :BLOCK] = 0
        x[1, : BLOCK // 2] = -0.0
        x[2, :BLOCK] = np.arange(BLOCK) + np.float32(0.5)  # ties of q8_0, if the largest is 127
        x[2, 0] = -127
        x[3, :BLOCK] = np.where(np.arange(BLOCK) % 2, 3, -3)  # equal magnitudes: the first decides
        x[4, :BLOCK] = 1e-5 * x[4, BLOCK : 2 * BLOCK]  # subnormal scales
        x[5, :BLOCK] = 3e4
        x[6, :BLOCK] = np.arange(BLOCK) - np.float32(8)  # codes of q4_0 at their ends
    data = quantization.quantize(source, x)
    return data, quantization.dequantize(source, data, (rows, columns))


@CONVERSIONS
@each_isa
def test_conversion_on_the_way_in_equals_the_reference(
    pool, isa: str, source: str, target: str
) -> None:
    for rows in (7, 16, 33):
        for columns in samples.columns_of(source):
            data, values = values_of(source, rows + columns, rows, columns)
            whole = pad(values, samples.block_of(target))
            stored = quantization.quantize(target, whole)
            expected = quantization.dequantize(target, stored, whole.shape)
            actual = testing.unpack(isa, pool, target, source, data, rows, columns)
            assert_same_bits(actual, expected)


@pytest.mark.parametrize("target", GGUF)
@pytest.mark.parametrize("source", FLOAT_FORMATS)
@each_isa
def test_quantizing_floats_equals_gguf(pool, isa: str, source: str, target: str) -> None:
    data, values = values_of(source, 5, 33, 320)
    expected = gguf.quants.dequantize(gguf.quants.quantize(values, GGUF[target]), GGUF[target])
    assert_same_bits(testing.unpack(isa, pool, target, source, data, 33, 320), expected)


@pytest.mark.parametrize("target", QUANTIZED)
@each_isa
def test_weights_too_small_for_a_scale_become_zero(pool, isa: str, target: str) -> None:
    x = np.float32(1e-42) * samples.floats(1, 4, 64)
    x[1:] *= np.float32(1e3)
    actual = testing.unpack(isa, pool, target, "f32", x.reshape(-1).view(np.uint8), 4, 64)
    assert (actual == 0).all()


@pytest.mark.parametrize("target", QUANTIZED)
@each_isa
def test_a_block_of_minus_zeros_becomes_zero(pool, isa: str, target: str) -> None:
    x = np.full((3, 32), -0.0, np.float32)
    actual = testing.unpack(isa, pool, target, "f32", x.reshape(-1).view(np.uint8), 3, 32)
    assert (actual == 0).all()


@pytest.mark.parametrize("head_dim", [2, 6, 16, 40, 64])
@each_format_and_isa
def test_neighbouring_pairs_become_halves(pool, format: str, isa: str, head_dim: int) -> None:
    heads, columns = 3, samples.whole(format, 64)
    rows = heads * head_dim
    data = samples.weights(format, head_dim, rows, columns)
    values = quantization.dequantize(format, data, (rows, columns))
    pairs = values.reshape(heads, head_dim // 2, 2, columns)
    expected = pairs.swapaxes(1, 2).reshape(rows, columns)
    actual = testing.unpack(isa, pool, format, format, data, rows, columns, head_dim)
    assert_same_bits(actual, expected.copy())


def test_a_row_order_by_hand(pool) -> None:
    x = np.zeros((8, 32), np.float32)
    x[:, 0] = range(8)
    data = x.reshape(-1).view(np.uint8)
    for isa in ISAS:
        actual = testing.unpack(isa, pool, "f32", "f32", data, 8, 32, 4)
        assert actual[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_more_tiles_than_chunks_are_all_packed(threads: int) -> None:
    rows = 16 * 5000 + 3  # 4096 chunks at most
    data = samples.weights("f16", 0, rows, 1)
    actual = testing.unpack(ISAS[0], _native.ThreadPool(threads), "f16", "f16", data, rows, 1)
    assert np.array_equal(actual[:, 0], quantization.dequantize("f16", data, (rows,)))
    assert not actual[:, 1:].any()


@pytest.mark.parametrize("change", [-1, 1, -4, 64])
@pytest.mark.parametrize("format", FORMATS)
def test_bytes_that_are_not_the_rows_are_refused(pool, format: str, change: int) -> None:
    columns = samples.whole(format, 32)
    data = samples.weights(format, 0, 5, columns)
    wrong = np.resize(data, len(data) + change)
    with pytest.raises(NativeError, match="the stored bytes are the rows"):
        testing.unpack(ISAS[0], pool, format, format, wrong, 5, columns)


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_part_of_a_block_is_refused(pool, format: str) -> None:
    block = samples.block_of(format)
    data = samples.weights(format, 0, 4, block)
    with pytest.raises(NativeError, match="a stored row is whole blocks"):
        testing.unpack(ISAS[0], pool, format, format, data, 8, block // 2)


@pytest.mark.parametrize("target", [f for f in FORMATS if f not in ENCODABLE])
def test_a_format_that_cannot_be_quantized_to_is_refused(pool, target: str) -> None:
    with pytest.raises(NativeError, match="can be quantized"):
        testing.unpack(ISAS[0], pool, target, "f32", samples.weights("f32", 0, 2, 32), 2, 32)


@pytest.mark.parametrize("head_dim", [-2, 3, 5, 4])
def test_rows_that_are_not_whole_heads_are_refused(pool, head_dim: int) -> None:
    data = samples.weights("f32", 0, 6, 32)
    with pytest.raises(NativeError, match="whole heads"):
        testing.unpack(ISAS[0], pool, "f32", "f32", data, 6, 32, head_dim)
