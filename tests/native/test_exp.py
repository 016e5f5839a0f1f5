"""e^x: within one unit in the last place, the same bits in every ISA, exact where it can be."""

from __future__ import annotations

import numpy as np
import pytest

from inferno import _native
from reference import ops

from .float32 import Floats, assert_same_bits
from .samples import ISAS

testing = _native.testing

each_isa = pytest.mark.parametrize("isa", ISAS)


def every(stride: int, low: float, high: float) -> Floats:
    """Take every `stride`-th float32 of those between two positive numbers."""
    first, last = np.float32([low, high]).view(np.uint32).tolist()
    return np.append(np.arange(first, last, stride, np.uint32), np.uint32(last)).view(np.float32)


SAMPLE = np.concatenate(
    [
        every(999, 1e-8, 88),
        -every(999, 1e-8, 87),
        # Around the multiples of ln 2 / 2, where the reduced argument changes sign or is largest.
        np.nextafter(np.float32(np.arange(-250, 254) * np.log(2) / 2), np.float32(0)),
        np.float32(np.arange(-250, 254) * np.log(2) / 2),
        np.nextafter(np.float32(np.arange(-250, 254) * np.log(2) / 2), np.float32(99)),
        np.arange(-87, 89, dtype=np.float32),
    ]
)


@each_isa
def test_exp_is_within_one_unit_in_the_last_place(isa: str) -> None:
    assert ops.ulps(testing.exp(isa, SAMPLE), ops.exp(SAMPLE)).max() <= 1


@each_isa
def test_exp_of_zero_is_one_exactly(isa: str) -> None:
    zeros = np.float32([0.0, -0.0, 1e-45, -1e-45, 1e-30])
    assert_same_bits(testing.exp(isa, zeros), np.ones(5, np.float32))


@each_isa
def test_exp_ends_at_minus_87_and_88(isa: str) -> None:
    below = np.nextafter(np.float32(-87), np.float32(-88))
    tiny = np.float32([below, -88, -104, -1e30, -np.inf])
    assert_same_bits(testing.exp(isa, tiny), np.zeros(5, np.float32))
    lowest, highest = testing.exp(isa, np.float32([-87, 88]))
    assert lowest >= np.finfo(np.float32).tiny  # weights of the softmax are normal numbers or zero
    beyond = np.float32([np.nextafter(np.float32(88), np.float32(89)), 88.5, 89, 1e30, np.inf])
    assert_same_bits(testing.exp(isa, beyond), np.full(5, highest, np.float32))


@pytest.mark.parametrize("length", range(35))
@each_isa
def test_exp_does_not_depend_on_the_place_in_the_row(isa: str, length: int) -> None:
    x = np.linspace(-90, 90, 34, dtype=np.float32)[:length].copy()
    singly = [testing.exp(isa, x[i : i + 1]) for i in range(length)]
    assert_same_bits(testing.exp(isa, x), np.concatenate([np.zeros(0, np.float32), *singly]))


def test_isas_agree_on_exp() -> None:
    x = np.concatenate([SAMPLE, every(99_991, 1e-45, np.inf), -every(99_991, 1e-45, np.inf)])
    first, *others = [testing.exp(isa, x) for isa in ISAS]
    for other in others:
        assert_same_bits(other, first)
