"""Activations on their way into a matrix product, byte for byte.

A tile of T tokens is, block by block, `f32 x[T][32]`, or
`int8 q[T][32] | f32 scale[T] | i32 bias[T] | f32 sum[T]`, or of 256 columns
`int8 q[T][256] | f32 scale[T] | i32 bias[T][16] | i16 sums[T][16] | i16 sums[T][8]`; the last tile
of a batch is as narrow as it has to be.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from inferno import _native
from reference import ops, quantization

from . import samples
from .float32 import UNIT_ROUNDOFF, Floats, assert_same_bits, fma, reduce_lanes

testing = _native.testing

each_isa = pytest.mark.parametrize("isa", samples.ISAS)
BLOCKS = {name: columns for name, columns, _ in _native.activations()}
each_kind = pytest.mark.parametrize("kind", BLOCKS)
COLUMNS = [1, 7, 15, 16, 17, 31, 32, 33, 48, 64, 160, 172, 576]
EPSILON = 1e-5


def tiles(kind: str, x: Floats, width: int) -> bytes:
    """Lay rows (tokens, columns) out as packed activations, in tiles of `width` tokens."""
    size = BLOCKS[kind]
    x = np.pad(x, ((0, 0), (0, -x.shape[1] % size)))
    out = []
    for first in range(0, len(x), width):
        rows = x[first : first + width]
        q, scales, sums = quantization.quantize_activations(rows, size)
        for b in range(x.shape[1] // size):
            block = slice(b * size, (b + 1) * size)
            if kind == "f32":
                out += [rows[:, block].tobytes()]
                continue
            out += [q[:, block].tobytes(), scales[:, b].tobytes()]
            if kind == "q8":
                out += [(-8 * sums[:, b]).astype("<i4").tobytes()]
                out += [(scales[:, b] * sums[:, b].astype(np.float32)).tobytes()]
            else:
                by_16 = q[:, block].reshape(len(q), 16, 16).sum(axis=2, dtype=np.int32)
                out += [(-32 * by_16).astype("<i4").tobytes()]
                out += [negated_sums(q[:, block], columns) for columns in (16, 32)]
    return b"".join(out)


def negated_sums(q: npt.NDArray[np.int8], columns: int) -> bytes:
    """Sum (tokens, 256) by `columns`; of each four sums the second and the third change places."""
    sums = -q.reshape(len(q), -1, columns).sum(axis=2, dtype=np.int16)
    return sums.reshape(len(q), -1, 4)[:, :, [0, 2, 1, 3]].astype("<i2").tobytes()


LIMIT = 7.0


def pack(
    isa: str, op: str, kind: str, x: Floats, other: Floats | None = None, limit: float = LIMIT
) -> bytes:
    return testing.pack(isa, op, kind, x, other, EPSILON, limit)


def rows_of(isa: str, op: str, x: Floats, other: Floats, limit: float = LIMIT) -> Floats:
    """Run an operation on each token alone: its packed float32 row is then its result."""
    rows = [pack(isa, op, "f32", x[t : t + 1], other[t : t + 1], limit) for t in range(len(x))]
    return np.frombuffer(b"".join(rows), np.float32).reshape(len(x), -1)[:, : x.shape[1]].copy()


@pytest.mark.parametrize("columns", COLUMNS)
@each_kind
@each_isa
def test_rows_are_rounded_and_laid_out(isa: str, kind: str, columns: int) -> None:
    x = samples.floats(columns, 9, columns)
    for tokens in range(1, 10):
        expected = tiles(kind, x[:tokens], testing.token_tile(isa))
        assert pack(isa, "pack", kind, x[:tokens]) == expected


@pytest.mark.parametrize("seed", range(5))
@each_kind
@each_isa
def test_extreme_rows_are_rounded_and_laid_out(isa: str, kind: str, seed: int) -> None:
    x = samples.hostile_activations(seed, 7, 32 * 40)
    assert pack(isa, "pack", kind, x) == tiles(kind, x, testing.token_tile(isa))


@each_isa
def test_a_block_by_hand(isa: str) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [254, 1, 3, -5, 2, -254]  # of scale 2: ties go to the even neighbour
    raw = testing.pack(isa, "pack", "q8", x)
    assert np.frombuffer(raw[:32], np.int8)[:6].tolist() == [127, 0, 2, -2, 1, -127]
    assert np.frombuffer(raw[32:36], np.float32) == 2
    assert np.frombuffer(raw[36:40], np.int32) == -8
    assert np.frombuffer(raw[40:44], np.float32) == 2


@pytest.mark.parametrize("amax", [1e-30, 1.17549435e-38, 1e-45, 3.4028235e38, 1.0])
@each_isa
def test_blocks_of_any_size_keep_their_largest_value_or_become_zero(isa: str, amax: float) -> None:
    largest = np.float32(amax)
    smaller = np.nextafter(np.float32(1e-30), np.float32(0))
    for value in (largest, -largest, min(largest, smaller)):
        x = np.full((1, 32), value / 4, np.float32)
        x[0, 3] = value
        raw = testing.pack(isa, "pack", "q8", x)
        code = np.frombuffer(raw[:32], np.int8)[3]
        scale = np.frombuffer(raw[32:36], np.float32)[0]
        if abs(value) < np.float32(1e-30):
            assert raw == bytes(44)
        else:
            assert code == np.sign(value) * 127
            assert scale == abs(value) / np.float32(127)


@pytest.mark.parametrize("columns", COLUMNS)
@each_kind
@each_isa
def test_rms_norm_equals_its_replay(isa: str, kind: str, columns: int) -> None:
    x = samples.floats(columns, 5, columns) * np.float32(3)
    weight = samples.floats(columns + 1, 1, columns)
    squares = np.zeros((len(x), 16), np.float32)
    lanes = np.pad(x, ((0, 0), (0, -columns % 16))).reshape(len(x), -1, 16)
    for step in range(lanes.shape[1]):
        squares = fma(lanes[:, step], lanes[:, step], squares)
    mean = reduce_lanes(squares, np.add) / np.float32(columns)
    inverse = np.float32(1) / np.sqrt(mean + np.float32(EPSILON))
    expected = x * inverse[:, None] * weight
    assert pack(isa, "rms_norm", kind, x, weight) == tiles(kind, expected, testing.token_tile(isa))


@pytest.mark.parametrize("columns", [1, 33, 576, 4096])
@pytest.mark.parametrize("size", [1e-18, 1e-3, 1.0, 1e5, 1e16])
@each_isa
def test_rms_norm_is_close_to_the_truth(isa: str, columns: int, size: float) -> None:
    x = samples.floats(columns, 3, columns) * np.float32(size)
    weight = samples.floats(columns + 1, 1, columns)
    actual = rows_of(isa, "rms_norm", x, np.repeat(weight, len(x), axis=0))
    # Sixteen chains of columns / 16 steps, the tree, the division and the epsilon, all of positive
    # terms, and the root halves their relative error; then root, division and two products.
    roundings = (columns / 16 + 1 + 4 + 2) / 2 + 4
    truth = ops.rms_norm(x, weight[0], float(np.float32(EPSILON)))
    bound = 1.01 * roundings * UNIT_ROUNDOFF * np.abs(truth)
    assert (np.abs(actual - truth) <= bound).all()


@each_isa
def test_rms_norm_of_zeros_is_zero(isa: str) -> None:
    zeros, ones = np.zeros((1, 48), np.float32), np.ones((1, 48), np.float32)
    assert_same_bits(rows_of(isa, "rms_norm", zeros, ones), zeros)


@pytest.mark.parametrize("columns", COLUMNS)
@each_kind
@each_isa
def test_silu_mul_equals_its_replay(isa: str, kind: str, columns: int) -> None:
    gate = samples.floats(columns, 6, columns) * np.float32(10)
    up = samples.floats(columns + 1, 6, columns)
    exp = testing.exp(isa, -gate.reshape(-1)).reshape(gate.shape)
    expected = gate / (np.float32(1) + exp) * up
    assert pack(isa, "silu_mul", kind, gate, up) == tiles(kind, expected, testing.token_tile(isa))


@each_isa
def test_silu_mul_is_close_to_the_truth(isa: str) -> None:
    gate = np.linspace(-87, 87, 32 * 500, dtype=np.float32)[None]
    up = samples.floats(0, *gate.shape)
    actual = rows_of(isa, "silu_mul", gate, up)
    # e^-x within a unit in the last place, which is two roundings; sum, division and product.
    truth = ops.swiglu(gate, up)
    assert (np.abs(actual - truth) <= 1.01 * 5 * UNIT_ROUNDOFF * np.abs(truth) + 1e-44).all()


@pytest.mark.parametrize(
    "gate",
    [
        0.0,
        -0.0,
        1e-45,
        -88.0,
        -100.0,
        100.0,
        1e30,
        -1e6,
        -1e35,
        -3e38,
    ],
)
@each_isa
def test_silu_of_extreme_gates(isa: str, gate: float) -> None:
    gates, ones = np.full((1, 32), gate, np.float32), np.ones((1, 32), np.float32)
    truth = np.float64(ops.silu(gates)[0, 0])
    assert rows_of(isa, "silu_mul", gates, ones)[0, 0] == pytest.approx(truth, rel=1e-6, abs=1e-30)


GATES = np.concatenate([np.linspace(-12, 12, 16000), np.linspace(-1e4, 1e4, 384)])[None]


@each_isa
def test_gelu_mul_is_close_to_the_truth(isa: str) -> None:
    gate = GATES.astype(np.float32)
    up = samples.floats(0, *gate.shape)
    actual = rows_of(isa, "gelu_mul", gate, up)
    truth = ops.gelu(gate) * up
    # An error of the exponent -2u is one of e^-2u, relatively: a few roundings of up to 90.
    roundings = 8 + 4 * np.minimum(np.abs(gate + gate.astype(np.float64) ** 3 / 22), 90)
    assert (np.abs(actual - truth) <= roundings * UNIT_ROUNDOFF * np.abs(truth) + 1e-30).all()


@pytest.mark.parametrize("limit", [0.5, 7.0])
@each_isa
def test_clamped_swiglu_is_close_to_the_truth(isa: str, limit: float) -> None:
    gate = GATES.astype(np.float32)
    up = samples.floats(0, *gate.shape) * np.float32(8)
    actual = rows_of(isa, "clamped_swiglu", gate, up, limit=limit)
    truth = ops.clamped_swiglu(gate, up, limit)
    roundings = 8 + 4 * np.minimum(np.abs(gate), 90)
    bound = roundings * UNIT_ROUNDOFF * (np.abs(truth) + np.minimum(np.abs(gate), limit)) + 1e-30
    assert (np.abs(actual - truth) <= bound).all()


@pytest.mark.parametrize("op", ["silu_mul", "gelu_mul", "clamped_swiglu"])
@pytest.mark.parametrize("which", [0, 1])
@each_isa
def test_an_activation_of_no_number_is_none(isa: str, op: str, which: int) -> None:
    inputs = [np.ones((1, 32), np.float32), np.ones((1, 32), np.float32)]
    inputs[which][0, 5] = np.nan
    found = rows_of(isa, op, *inputs, limit=7.0)
    assert np.isnan(found[0, 5]) and np.isfinite(found[0, :5]).all()


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("columns", [1, 8, 16, 24, 33, 576])
@each_isa
def test_norms_that_write_rows_are_those_that_are_packed(
    isa: str, columns: int, accumulate: bool
) -> None:
    x, weight = samples.floats(columns, 5, columns), samples.floats(columns + 1, columns)
    expected = rows_of(isa, "rms_norm", x, np.repeat(weight[None], 5, axis=0))
    into = samples.floats(3, 5, columns) if accumulate else None
    expected = expected if into is None else into + expected
    assert_same_bits(testing.rms_norm_rows(isa, x, weight, EPSILON, into), expected)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@each_kind
def test_isas_agree_on_values_that_are_not_finite(kind: str, value: float) -> None:
    x = np.ones((1, 32), np.float32)
    x[0, 3] = value
    assert len({testing.pack(isa, "pack", kind, x) for isa in samples.ISAS}) == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("format", ["q8_0", "q4_k", "q6_k"])
@each_isa
def test_what_is_not_finite_does_not_become_an_answer(isa: str, format: str, value: float) -> None:
    x = np.ones((1, 512), np.float32)
    x[0, 3] = value
    weights = quantization.quantize(format, np.ones((16, 512), np.float32))
    y = testing.matmul(isa, _native.ThreadPool(1), format, format, weights, 16, x)
    assert np.isnan(y).all()


@pytest.mark.parametrize("op", ["pack", "rms_norm", "silu_mul", "gelu_mul", "clamped_swiglu"])
@each_kind
def test_isas_agree_on_extreme_rows(op: str, kind: str) -> None:
    # Tiles may differ in width, so token by token.
    for seed in range(3):
        x = samples.hostile_activations(seed, 4, 172)
        other = samples.floats(seed, 4, 172)
        for t in range(len(x)):
            row, second = x[t : t + 1], None if op == "pack" else other[t : t + 1]
            assert len({pack(isa, op, kind, row, second) for isa in samples.ISAS}) == 1
