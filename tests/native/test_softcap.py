"""limit * tanh(x / limit): close to the truth, within its limits, and the same bits everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from inferno import _native
from reference import ops

from .float32 import UNIT_ROUNDOFF, assert_same_bits
from .samples import ISAS

testing = _native.testing

each_isa = pytest.mark.parametrize("isa", ISAS)
SAMPLE = np.concatenate(
    [np.linspace(-300, 300, 4001), 10.0 ** np.arange(-30, 30), -(10.0 ** np.arange(-30, 30))]
).astype(np.float32)


@pytest.mark.parametrize("limit", [1.0, 30.0, 50.0])
@each_isa
def test_softcap_is_close_to_the_truth(isa: str, limit: float) -> None:
    found = testing.softcap(isa, SAMPLE, limit)
    # Exponential, sum and quotient, each a rounding or two of what is at most twice the limit.
    assert np.abs(found - ops.softcap(SAMPLE, limit)).max() <= 8 * UNIT_ROUNDOFF * limit
    assert np.abs(found).max() <= limit


@pytest.mark.parametrize("length", range(1, 35))
@each_isa
def test_softcap_does_not_depend_on_the_place_in_the_row(isa: str, length: int) -> None:
    x = np.linspace(-90, 90, 34, dtype=np.float32)[:length].copy()
    singly = [testing.softcap(isa, x[i : i + 1], 30.0) for i in range(length)]
    assert_same_bits(testing.softcap(isa, x, 30.0), np.concatenate(singly))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@each_isa
def test_what_is_not_finite_does_not_become_an_answer(isa: str, value: float) -> None:
    assert np.isnan(testing.softcap(isa, np.float32([value]), 30.0)).all()


def test_isas_agree_on_softcap() -> None:
    first, *others = [testing.softcap(isa, SAMPLE, 7.0) for isa in ISAS]
    for other in others:
        assert_same_bits(other, first)
