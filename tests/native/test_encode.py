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
    rows, columns = 13, 3 * max(32, quantization.COLUMNS[format])
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
        ("f32", "q8_0", 34, 32),
    ],
)
def test_what_cannot_be_encoded_is_an_error(
    format: str, source: str, size: int, columns: int
) -> None:
    data = np.zeros(size, np.uint8)
    with pytest.raises(NativeError):
        _native.encode_rows(_native.ThreadPool(1), format, source, data, columns)


# least squares ------------------------------------------------------------------------------------

# The least and the largest code.
FITTED = {"q4_0": (-8, 7), "q4_1": (0, 15), "q5_0": (-16, 15), "q5_1": (0, 31), "q8_0": (-127, 127)}


def encoded(format: str, values: np.ndarray, *options: object) -> np.ndarray:
    stored = quantization.quantize("f32", values)
    data = _native.encode_rows(
        _native.ThreadPool(2), format, "f32", stored, values.shape[1], *options
    )
    return quantization.dequantize(format, data, values.shape)


def test_the_naive_scale_clips_the_largest_positive_weight() -> None:
    values = np.linspace(-7, 8, 32, dtype=np.float32)[None]
    assert encoded("q4_0", values, "naive").max() == 7
    assert encoded("q4_0", values).max() == 8


@pytest.mark.parametrize("format", FITTED)
def test_least_squares_finds_what_can_be_said_exactly(format: str) -> None:
    """Multiples of a scale that f16 has, the extremes of the range at either end of a block."""
    low, high = FITTED[format]
    codes = np.random.default_rng(2).integers(low, high + 1, (64, 32))
    codes[:, 0], codes[:, 1] = low, high
    for scale in (0.125, -0.125) if format in ("q4_0", "q5_0") else (0.125,):
        values = (scale * codes).astype(np.float32)
        assert (encoded(format, values, "least_squares") == values).all()


@pytest.mark.parametrize("kind", ["uniform", "normal", "outlier"])
@pytest.mark.parametrize("format", FITTED)
def test_no_block_is_further_from_the_weights_than_by_the_reference(format: str, kind: str) -> None:
    generator = np.random.default_rng(3)
    values = generator.standard_normal((500, 32)).astype(np.float32)
    importance = None
    if kind == "uniform":
        values = generator.uniform(-1, 1, (500, 32)).astype(np.float32)
    if kind == "outlier":
        importance = generator.exponential(1, 32).astype(np.float32) ** 3
    weight = np.ones(32) if importance is None else importance
    reference = (weight * (encoded(format, values) - values) ** 2).sum(axis=1)
    fitted = encoded(format, values, "least_squares", importance)
    errors = (weight * (fitted - values) ** 2).sum(axis=1)
    # A scale is rounded to f16, by 2^-11 at most: of codes up to 127, a sixteenth of a step.
    assert (errors <= reference * (1.1 if format == "q8_0" else 1.01)).all()
    assert errors.sum() < reference.sum() * (1 if format == "q8_0" else 0.95)


def test_least_squares_has_no_better_scale_beside_the_one_it_chose() -> None:
    """Against a search of 2,000 scales a block, in numpy."""
    values = np.random.default_rng(4).standard_normal((50, 32)).astype(np.float32)
    errors = ((encoded("q4_0", values, "least_squares") - values) ** 2).sum(axis=1)
    largest = np.abs(values).max(axis=1)
    best = np.full(50, np.inf)
    for ratio in np.linspace(1 / 12, 1 / 5, 1000):
        for d in (largest * ratio, -largest * ratio):
            codes = np.clip(np.rint(values / d[:, None]), -8, 7)
            best = np.minimum(best, ((codes * d[:, None] - values) ** 2).sum(axis=1))
    # Twice 19 candidates find nearly all of what a thousand do.
    assert errors.mean() < 1.02 * best.mean()


@pytest.mark.parametrize("format", FITTED)
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30, np.inf, -np.inf, np.nan, 65504.0])
def test_least_squares_survives_any_weights(format: str, value: float) -> None:
    values = np.zeros((3, 32), np.float32)
    values[1], values[2, 5] = value, value
    stored = quantization.quantize("f32", values)
    pool = _native.ThreadPool(1)
    fitted = _native.encode_rows(pool, format, "f32", stored, 32, "least_squares")
    assert (quantization.dequantize(format, fitted[: len(fitted) // 3], (32,)) == 0).all()
    if not np.isfinite(value):
        reference = _native.encode_rows(pool, format, "f32", stored, 32)
        assert fitted.tobytes() == reference.tobytes()


def test_columns_without_importance_are_weighed_alike() -> None:
    values = np.random.default_rng(5).standard_normal((9, 64)).astype(np.float32)
    expected = encoded("q4_0", values, "least_squares")
    zeros = np.zeros(64, np.float32)
    assert (encoded("q4_0", values, "least_squares", zeros) == expected).all()


def test_an_importance_of_another_length_is_an_error() -> None:
    values = np.zeros((1, 64), np.float32)
    with pytest.raises(NativeError):
        encoded("q4_0", values, "least_squares", np.ones(32, np.float32))
    with pytest.raises(NativeError):
        encoded("q4_0", values, "best")


# blocks of 256 columns ----------------------------------------------------------------------------

# Codes less their offset, and integers for scales and minima.
SUPER = {
    "q2_k": ((0, 3), (0, 15)),
    "q3_k": ((-4, 3), (-32, 31)),
    "q4_k": ((0, 15), (0, 63)),
    "q5_k": ((0, 31), (0, 63)),
    "q6_k": ((-32, 31), (-128, 127)),
}


def weighted_errors(values: np.ndarray, found: np.ndarray, weight: np.ndarray | float) -> float:
    return float((weight * (found.astype(np.float64) - values) ** 2).sum())


@pytest.mark.parametrize("format", SUPER)
def test_least_squares_finds_super_blocks_that_can_be_said_exactly(format: str) -> None:
    generator = np.random.default_rng(6)
    (low, high), (least, most) = SUPER[format]
    count, subs = 40, 8 if format in ("q4_k", "q5_k") else 16
    codes = generator.integers(low, high + 1, (count, subs, 256 // subs))
    codes[..., 0], codes[..., 1] = low, high
    scales = generator.integers(least, most + 1, (count, subs))
    scales[scales == 0] = most  # a sub-block without a scale says nothing of its codes
    scales[:, 0] = most if least == 0 else least
    minima = generator.integers(0, most + 1, (count, subs)) * (least == 0)
    minima[:, 3] = most * (least == 0)
    d, dmin = np.float32(2**-9), np.float32(2**-8)
    values = (d * scales)[..., None] * codes - (dmin * minima)[..., None]
    values = values.reshape(count, 256).astype(np.float32)
    assert (encoded(format, values, "least_squares") == values).all()


@pytest.mark.parametrize("importance", [False, True])
@pytest.mark.parametrize("format", SUPER)
def test_super_blocks_are_nearer_to_the_weights_than_by_their_extremes(
    format: str, importance: bool
) -> None:
    generator = np.random.default_rng(7)
    values = generator.standard_normal((100, 256)).astype(np.float32)
    values[50:] += generator.standard_normal((50, 1)).astype(np.float32)  # off centre
    weight = generator.exponential(1, 256).astype(np.float32) ** 3 if importance else None
    found = encoded(format, values, "least_squares", weight)
    reference = encoded(format, values)
    for block in range(len(values)):
        given = 1.0 if weight is None else weight
        ours = weighted_errors(values[block], found[block], given)
        assert ours <= weighted_errors(values[block], reference[block], given)
    total = weighted_errors(values, found, 1.0 if weight is None else weight)
    bound = 0.6 if importance else 0.93
    assert total < bound * weighted_errors(values, reference, 1.0 if weight is None else weight)


@pytest.mark.parametrize(("format", "free"), [("q4_k", "q4_1"), ("q5_k", "q5_1")])
def test_integers_for_scales_cost_little_beside_free_ones(format: str, free: str) -> None:
    """The same codes with f16 scales and minima: 5 and 6 bits a weight, for 4.5 and 5.5."""
    values = np.random.default_rng(8).standard_normal((200, 256)).astype(np.float32)
    errors = [
        weighted_errors(values, encoded(name, values, "least_squares"), 1.0)
        for name in (format, free)
    ]
    # A scale is off by 1/126 of the largest at most, and the minimum is chosen along with it.
    assert errors[0] < 1.05 * errors[1]


@pytest.mark.parametrize("format", SUPER)
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30, np.inf, -np.inf, np.nan, 65504.0])
def test_super_blocks_survive_any_weights(format: str, value: float) -> None:
    values = np.zeros((3, 256), np.float32)
    values[1], values[2, 5] = value, value
    stored = quantization.quantize("f32", values)
    pool = _native.ThreadPool(1)
    for quantizer in ("reference", "least_squares"):
        data = _native.encode_rows(pool, format, "f32", stored, 256, quantizer)
        assert (quantization.dequantize(format, data[: len(data) // 3], (256,)) == 0).all()
    if not np.isfinite(value):
        reference = _native.encode_rows(pool, format, "f32", stored, 256)
        assert data.tobytes() == reference.tobytes()


@pytest.mark.parametrize("format", SUPER)
def test_columns_that_matter_nothing_still_have_a_near_code(format: str) -> None:
    values = np.random.default_rng(9).standard_normal((20, 256)).astype(np.float32)
    importance = np.ones(256, np.float32)
    importance[:128] = 0  # whole sub-blocks
    found = encoded(format, values, "least_squares", importance)
    plain = encoded(format, values, "least_squares")
    of_nothing = weighted_errors(values[:, :128], found[:, :128], 1.0)
    assert of_nothing < 1.5 * weighted_errors(values[:, :128], plain[:, :128], 1.0)


@pytest.mark.parametrize("format", [*FITTED, *SUPER])
def test_threads_and_company_change_no_bit_of_a_row(format: str) -> None:
    values = np.random.default_rng(10).standard_normal((37, 512)).astype(np.float32)
    importance = np.random.default_rng(11).exponential(1, 512).astype(np.float32)

    def rows(first: int, last: int, threads: int) -> bytes:
        return _native.encode_rows(
            _native.ThreadPool(threads),
            format,
            "f32",
            quantization.quantize("f32", values[first:last]),
            512,
            "least_squares",
            importance,
        ).tobytes()

    expected = rows(0, 37, 1)
    assert rows(0, 37, 2) == rows(0, 37, 3) == expected
    assert b"".join(rows(row, row + 1, 1) for row in range(37)) == expected
