"""Which experts a token has, with what weights, and the sum of what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inferno import _native

from . import samples
from .float32 import UNIT_ROUNDOFF, Floats, assert_same_bits, fma
from .samples import ISAS

testing = _native.testing

each_isa = pytest.mark.parametrize("isa", ISAS)
SHAPES = [(1, 1), (2, 1), (8, 2), (8, 8), (17, 3), (32, 4), (128, 8), (1024, 10)]
each_shape = pytest.mark.parametrize(("experts", "chosen"), SHAPES)


def expected_route(logits: Floats, chosen: int, normalize: bool) -> tuple[Any, Any]:
    scores = logits.astype(np.float64)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :chosen]  # ties go to the lower
    ids = np.sort(order, axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    picked = np.take_along_axis(weights, ids, axis=1)
    return ids, picked / (picked if normalize else weights).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("normalize", [False, True])
@each_shape
@each_isa
def test_routes_are_those_of_a_softmax(
    isa: str, experts: int, chosen: int, normalize: bool
) -> None:
    logits = samples.floats(experts, 9, experts) * np.float32(3)
    ids, weights = testing.route(isa, logits, chosen, normalize)
    expected_ids, expected_weights = expected_route(logits, chosen, normalize)
    assert ids.tolist() == expected_ids.tolist()
    # Exponentials within a unit in the last place, two sums and a quotient.
    bound = (8 + experts / 16) * UNIT_ROUNDOFF * expected_weights
    assert (np.abs(weights - expected_weights) <= bound).all()


@each_isa
def test_ties_go_to_the_lower_expert(isa: str) -> None:
    ids, weights = testing.route(isa, np.float32([[1, 2, 1, 1, 2, 1]]), 4, True)
    assert ids.tolist() == [[0, 1, 2, 4]]
    assert weights[0, 0] == weights[0, 2] and weights[0, 1] == weights[0, 3]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@each_isa
def test_logits_that_are_no_numbers_choose_experts_that_exist(isa: str, value: float) -> None:
    for count in (1, 5):
        logits = np.zeros((1, 5), np.float32)
        logits[0, :count] = value
        ids, weights = testing.route(isa, logits, 3, True)
        assert len(set(ids[0].tolist())) == 3 and set(ids[0].tolist()) <= set(range(5))
        assert np.isnan(weights).any()


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("columns", [1, 15, 16, 40, 100])
@each_isa
def test_a_combination_equals_its_replay(isa: str, columns: int, accumulate: bool) -> None:
    rows, weights = samples.floats(columns, 5, columns), np.abs(samples.floats(1, 5))
    into = samples.floats(2, columns) if accumulate else None
    expected = np.zeros(columns, np.float32)
    for row, weight in zip(rows, weights, strict=True):
        expected = fma(row, weight, expected)
    if into is not None:
        expected = into + expected
    assert_same_bits(testing.combine(isa, rows, weights, into), expected)


@each_shape
def test_isas_agree_on_routes(experts: int, chosen: int) -> None:
    logits = samples.hostile_activations(experts, 4, experts)
    for normalize in (False, True):
        (ids, weights), *others = [testing.route(isa, logits, chosen, normalize) for isa in ISAS]
        for other_ids, other_weights in others:
            assert other_ids.tolist() == ids.tolist()
            assert_same_bits(other_weights, weights)
