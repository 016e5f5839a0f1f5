"""Matrix products: every ISA equals a replay of the arithmetic in numpy, bit for bit.

The replay: a block of columns gives each output one exact integer, which one fused multiply-add
joins to the output's only accumulator, and a second one what its minima come to, blocks in order
(formats of floats: one chain of fused multiply-adds a block). Nothing in it knows tiles, lanes or
the number of tokens.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from inferno import _native
from reference import ops, quantization

from . import samples
from .float32 import UNIT_ROUNDOFF, Floats, assert_same_bits, fma
from .samples import BLOCK_FORMATS, FORMATS, ISAS, each_format_and_isa

testing = _native.testing

ROWS = [*range(1, 18), 32, 33]
TOKENS = range(1, 10)
BLOCK = quantization.BLOCK


def pad(x: Floats) -> Floats:
    """Fill columns with zeros up to a whole block."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % BLOCK)))


def replay(format: str, data: samples.Bytes, rows: int, x: Floats) -> Floats:
    """Multiply stored weights (rows, columns) with x (tokens, columns): (tokens, rows)."""
    tokens, columns = x.shape
    acc = np.zeros((tokens, rows), np.float32)
    if format not in BLOCK_FORMATS:
        blocks = -(-columns // BLOCK)
        w, x = pad(quantization.dequantize(format, data, (rows, columns))), pad(x)
        for b in range(blocks):
            total = np.zeros_like(acc)
            for k in range(b * BLOCK, (b + 1) * BLOCK):
                total = fma(w[None, :, k], x[:, k, None], total)
            acc = acc + total
        return acc
    b = ops.block_sums(format, data, rows, x)
    weighted = b.weighted.astype(np.float32)  # one rounding if it is 2^24 or more
    for i in range(b.d.shape[1]):
        acc = fma(weighted[:, :, i], b.d[None, :, i] * b.scales[:, i, None], acc)
        if not b.has_minima:
            continue
        if samples.block_of(format) > BLOCK:
            offsets = b.offsets[:, :, i].astype(np.float32)
            acc = fma(offsets, b.m[None, :, i] * b.scales[:, i, None], acc)
        else:  # the minimum of each row, times the sum of each token
            offsets = b.offsets[:, :1, i].astype(np.float32)
            acc = fma(b.m[None, :, i], b.scales[:, i, None] * offsets, acc)
    return acc


def multiply(
    isa: str, pool, format: str, data: samples.Bytes, rows: int, x: Floats, **options: Floats
) -> Floats:
    return testing.matmul(isa, pool, format, format, data, rows, x, **options)


@cache
def largest_case(format: str, columns: int) -> tuple[samples.Bytes, Floats, Floats]:
    """Weights (33, columns) as bytes (33, ...), activations (9, columns), the replayed product."""
    data = samples.weights(format, columns, max(ROWS), columns)
    x = samples.floats(columns + 1, max(TOKENS), columns)
    return data.reshape(max(ROWS), -1), x, replay(format, data, max(ROWS), x)


@pytest.mark.parametrize(
    ("format", "isa", "columns"),
    [
        pytest.param(format, isa, columns, id=f"{format}-{isa}-{columns}")
        for format in FORMATS
        for isa in ISAS
        for columns in samples.columns_of(format)
    ],
)
def test_every_shape_equals_the_replay(pool, format: str, isa: str, columns: int) -> None:
    data, x, expected = largest_case(format, columns)
    for rows in ROWS:
        stored = data[:rows].reshape(-1)
        for tokens in TOKENS:
            actual = multiply(isa, pool, format, stored, rows, x[:tokens])
            assert_same_bits(actual, expected[:tokens, :rows].copy())


# As many as a group of the executor and more, whole register tiles and not: blocks of 256 columns
# are taken apart for them (`kExpandsFrom`, `kExpandedTokens`).
MANY_TOKENS = (16, 95, 96, 128, 131)


@cache
def crowded_case(format: str) -> tuple[samples.Bytes, Floats, Floats]:
    """Weights (17, columns), activations (131, columns) with extremes among them, the product."""
    rows, tokens, columns = 17, max(MANY_TOKENS), samples.whole(format, 768)
    data = samples.weights(format, 20, rows, columns)
    x = samples.floats(21, tokens, columns)
    x[::3] = samples.hostile_activations(22, len(x[::3]), columns)
    return data, x, replay(format, data, rows, x)


@each_format_and_isa
def test_a_prompt_s_tokens_equal_the_replay(pool, format: str, isa: str) -> None:
    data, x, expected = crowded_case(format)
    for tokens in MANY_TOKENS:
        actual = multiply(isa, pool, format, data, expected.shape[1], x[:tokens])
        assert_same_bits(actual, expected[:tokens].copy())


@pytest.mark.parametrize("isa", ISAS)
def test_a_product_by_hand(pool, isa: str) -> None:
    # 32 weights of 2 * (9 - 8), 32 activations of 127, whose scale is 1.
    block = np.concatenate([np.array([2], "<f2").view(np.uint8), np.full(16, 0x99, np.uint8)])
    assert multiply(isa, pool, "q4_0", block, 1, np.full((1, 32), 127, np.float32)) == 64 * 127
    # Weight 5 of row 1 alone is set; activation 5 is 3.
    w = np.zeros((2, 7), np.float32)
    w[1, 5] = 0.5
    x = np.arange(-2, 5, dtype=np.float32)[None]
    assert multiply(isa, pool, "f32", w.reshape(-1).view(np.uint8), 2, x).tolist() == [[0.0, 1.5]]


@pytest.mark.parametrize("seed", range(4))
@each_format_and_isa
def test_extreme_blocks_equal_the_replay(pool, format: str, isa: str, seed: int) -> None:
    rows, tokens, columns = 33, 9, samples.whole(format, 320)
    data = samples.hostile_weights(format, seed, rows, columns)
    x = samples.hostile_activations(seed, tokens, columns)
    expected = replay(format, data, rows, x)
    assert np.isfinite(expected).all()
    assert_same_bits(multiply(isa, pool, format, data, rows, x), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("format", "fill", "code"),
    [
        ("q4_0", 0x00, -8),
        ("q4_0", 0xFF, 7),
        ("q4_1", 0x00, 0),
        ("q4_1", 0xFF, 15),
        ("q5_0", 0x00, -16),
        ("q5_0", 0xFF, 15),
        ("q5_1", 0xFF, 31),
        ("q8_0", 0x80, -128),
        ("q8_0", 0x7F, 127),
        ("iq4_nl", 0x00, -127),
        ("iq4_nl", 0xFF, 113),
        ("mxfp4", 0x77, 6),
        ("mxfp4", 0xFF, -6),
    ],
)
def test_the_largest_integer_sums_are_exact(
    pool, isa: str, format: str, fill: int, code: int, sign: int
) -> None:
    # int16 holds 8 x 2 x 15 x 127 of nibbles, 4 x 2 x 31 x 127 of five bits, or 2 x 128 x 127 of
    # bytes: these are at the edge.
    columns = 128
    block = np.full(quantization.BLOCK_BYTES[format], fill, np.uint8)
    block[:2] = np.array([1], "<f2").view(np.uint8)
    if format.endswith("_1"):
        block[2:4] = 0
    if format == "mxfp4":
        block[0], block[1] = 127, fill
    data = np.tile(block, 16 * columns // BLOCK)
    x = np.full((5, columns), sign * 127, np.float32)
    expected = np.full((5, 16), float(code * sign * 127 * columns), np.float32)
    assert_same_bits(multiply(isa, pool, format, data, 16, x) + np.float32(0), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x7F, 0x80])
@pytest.mark.parametrize("format", quantization.SUPER_FORMATS)
def test_the_largest_sums_of_super_blocks_are_exact(
    pool, isa: str, format: str, fill: int, sign: int
) -> None:
    # Scales and codes at their ends; in q6_k 256 x 128 x 63 x 127 need 29 bits.
    columns = 512
    block = np.full(quantization.BLOCK_BYTES[format], fill, np.uint8)
    for offset in quantization.HALVES[format]:
        block[offset : offset + 2] = np.array([1], "<f2").view(np.uint8)
    data = np.tile(block, 16 * columns // 256)
    x = np.full((5, columns), sign * 127, np.float32)
    assert_same_bits(multiply(isa, pool, format, data, 16, x), replay(format, data, 16, x))


@each_format_and_isa
def test_huge_activations_do_not_overflow(pool, format: str, isa: str) -> None:
    columns = samples.whole(format, 96)
    data = samples.weights(format, 3, 17, columns)
    x = samples.floats(4, 5, columns) * np.float32(1e30)
    actual = multiply(isa, pool, format, data, 17, x)
    assert np.isfinite(actual).all()
    assert_same_bits(actual, replay(format, data, 17, x))


@each_format_and_isa
def test_the_error_is_within_what_the_roundings_allow(pool, format: str, isa: str) -> None:
    rows, tokens, columns = 33, 5, 2048
    data = samples.weights(format, 5, rows, columns)
    x = samples.floats(6, tokens, columns)
    blocks = columns // samples.block_of(format)
    if format in BLOCK_FORMATS:
        truth = ops.quantized_matmul(format, data, rows, x)
        b = ops.block_sums(format, data, rows, x)
        terms = np.einsum("trb,rb,tb->tr", np.abs(b.weighted), np.abs(b.d), b.scales)
        terms += np.einsum("trb,rb,tb->tr", np.abs(b.offsets), np.abs(b.m), b.scales)
        # A term is a rounded product, of 256 columns with an integer that may be rounded too, then
        # passes one rounding a step: two steps a block if there are minima.
        roundings = 2 + blocks * (2 if b.has_minima else 1)
    else:
        w = quantization.dequantize(format, data, (rows, columns))
        truth = ops.matmul(w, x)
        terms = ops.matmul(np.abs(w), np.abs(x))
        roundings = BLOCK + blocks
    actual = multiply(isa, pool, format, data, rows, x)
    bound = roundings * UNIT_ROUNDOFF / (1 - roundings * UNIT_ROUNDOFF) * terms
    assert (np.abs(actual - truth) <= bound).all()


@each_format_and_isa
def test_a_token_knows_nothing_of_its_batch(pool, format: str, isa: str) -> None:
    rows, columns = 19, samples.whole(format, 160)
    data = samples.hostile_weights(format, 7, rows, columns)
    x = samples.hostile_activations(8, 9, columns)
    batch = multiply(isa, pool, format, data, rows, x)
    for token in range(len(x)):
        alone = multiply(isa, pool, format, data, rows, x[token : token + 1])
        assert_same_bits(alone, batch[token : token + 1])
    for shift in range(1, len(x)):  # every token in every place of a tile
        moved = multiply(isa, pool, format, data, rows, np.roll(x, shift, axis=0))
        assert_same_bits(moved, np.roll(batch, shift, axis=0))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 33])
@each_format_and_isa
def test_bias_and_residual_are_added_after_the_sum(pool, format: str, isa: str, rows: int) -> None:
    columns, tokens = samples.whole(format, 64), 6
    data = samples.weights(format, 9, rows, columns)
    x = samples.floats(10, tokens, columns)
    bias = samples.floats(11, rows)
    into = samples.floats(12, tokens, rows)
    product = multiply(isa, pool, format, data, rows, x)
    with_bias = multiply(isa, pool, format, data, rows, x, bias=bias)
    assert_same_bits(with_bias, product + bias)
    assert_same_bits(multiply(isa, pool, format, data, rows, x, into=into), into + product)
    both = multiply(isa, pool, format, data, rows, x, bias=bias, into=into)
    assert_same_bits(both, into + (product + bias))


@pytest.mark.parametrize("format", FORMATS)
def test_isas_agree_on_a_large_product(pool, format: str) -> None:
    rows, tokens, columns = 100, 7, 1024
    data = samples.weights(format, 13, rows, columns)
    x = samples.floats(14, tokens, columns) * np.float32(100)
    first, *others = [multiply(isa, pool, format, data, rows, x) for isa in ISAS]
    for other in others:
        assert_same_bits(other, first)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", [f for f in samples.ENCODABLE if f != "f32"])
def test_weights_quantized_when_packed_multiply_as_stored_ones(pool, isa: str, format: str) -> None:
    columns = 3 * max(32, samples.BLOCKS[format])
    values = samples.floats(15, 21, columns)
    x = samples.floats(16, 5, columns)
    raw = values.reshape(-1).view(np.uint8)
    stored = quantization.quantize(format, values)
    actual = testing.matmul(isa, pool, format, "f32", raw, 21, x)
    assert_same_bits(actual, multiply(isa, pool, format, stored, 21, x))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_threads_that_pack_change_no_bit(pool, isa: str, threads: int) -> None:
    data = samples.weights("q4_0", 17, 500, 64)
    x = samples.floats(18, 3, 64)
    many = multiply(isa, _native.ThreadPool(threads), "q4_0", data, 500, x)
    assert_same_bits(many, multiply(isa, pool, "q4_0", data, 500, x))
