"""Conversions of numbers, and the arithmetic of the replays, against numpy, torch and fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from inferno import _native

from . import float32, samples

testing = _native.testing

HALVES = np.arange(65536, dtype=np.uint16)


def test_every_half_becomes_its_float() -> None:
    actual = np.array([testing.f16_to_f32(int(h)) for h in HALVES], np.float32)
    expected = HALVES.view(np.float16).astype(np.float32)
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(actual), nan)
    assert np.array_equal(actual[~nan].view(np.uint32), expected[~nan].view(np.uint32))


def test_floats_round_to_the_nearest_half_and_ties_to_even() -> None:
    positive = HALVES[:0x7C00].view(np.float16).astype(np.float32)
    ends = np.append(positive, np.float32(65536))  # the next half, if there were one
    middles = (ends[:-1] + ends[1:]) / 2  # exact
    x = np.concatenate(
        [
            positive,
            middles,
            np.nextafter(middles, np.float32(np.inf)),
            np.nextafter(middles, np.float32(0)),
            np.float32([1e-45, 1e-30, 1e30, np.inf]),
        ]
    )
    x = np.concatenate([x, -x])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).view(np.uint16)
    actual = np.array([testing.f32_to_f16(v) for v in x.tolist()], np.uint16)
    assert np.array_equal(actual, expected)


def test_floats_round_to_the_nearest_bfloat16_and_ties_to_even() -> None:
    torch = pytest.importorskip("torch")
    tails = np.array([0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = (HALVES.astype(np.uint32)[:, None] << 16 | tails).reshape(-1)
    x = bits[bits & 0x7FFFFFFF <= 0x7F800000].view(np.float32)
    expected = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    actual = np.array([testing.f32_to_bf16(v) for v in x.tolist()], np.uint16)
    assert np.array_equal(actual, expected)


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFF80FFFF])
def test_a_nan_stays_a_nan(bits: int) -> None:
    nan = float(np.uint32(bits).view(np.float32))
    assert testing.f32_to_f16(nan) & 0x7FFF > 0x7C00
    assert testing.f32_to_bf16(nan) & 0x7FFF > 0x7F80


@pytest.mark.parametrize("isa", samples.ISAS)
def test_weights_of_every_half_are_widened_as_one_half_is(isa: str, pool) -> None:
    finite = HALVES[HALVES & 0x7FFF < 0x7C00]
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 1
    weights = np.zeros((len(finite), 32), np.uint16)
    weights[:, 0] = finite
    raw = weights.reshape(-1).view(np.uint8)
    actual = testing.matmul(isa, pool, "f16", "f16", raw, len(finite), x)
    # Sums start from zero, so a weight of minus zero counts as zero.
    expected = finite.view(np.float16).astype(np.float32)[None] + np.float32(0)
    float32.assert_same_bits(actual, expected)


def nearest_float(x: Fraction) -> np.float32:
    """Round a fraction to float32, ties to even, by comparing it with its neighbours."""
    guess = np.float32(float(x))
    around = [guess, *(np.nextafter(guess, np.float32(end)) for end in (-np.inf, np.inf))]
    return min(around, key=lambda v: (abs(Fraction(float(v)) - x), int(v.view(np.uint32)) & 1))


def test_the_fused_multiply_add_of_the_replays_rounds_once() -> None:
    rng = np.random.default_rng(0)
    count = 3000
    a, b = (1 + rng.integers(0, 2**23, (2, count)) * 2.0**-23).astype(np.float32)
    c = a * (2.0 ** rng.integers(-30, 30, count)).astype(np.float32) * rng.choice([-1, 1], count)
    c = c.astype(np.float32)
    # Sums a hair from a tie: the product is 1 - 2^-46, and 1 is half of c's last place.
    a[::3], b[::3] = 1 + 2.0**-23, 1 - 2.0**-23
    c[::3] = 2.0**24 + 2 * rng.integers(0, 2**23, len(c[::3]))
    a[1::6] *= np.float32(2.0**-130)  # subnormal
    c[1::6] *= np.float32(2.0**-130)
    expected = [
        nearest_float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    float32.assert_same_bits(float32.fma(a, b, c), np.array(expected, np.float32))
    # The doubly rounded sum differs on some of these, or the test would prove nothing.
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (twice != expected).any()
