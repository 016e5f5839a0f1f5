"""Rotary embedding: its sines and cosines, and the rotation of pairs (i, i + head_dim / 2)."""

from __future__ import annotations

import numpy as np
import pytest

from inferno import _native
from reference import ops

from . import samples
from .float32 import UNIT_ROUNDOFF, Floats, assert_same_bits, fma

testing = _native.testing

each_isa = pytest.mark.parametrize("isa", samples.ISAS)
each_head_dim = pytest.mark.parametrize("head_dim", [2, 8, 40, 64, 80, 128, 256])
POSITIONS = [0, 1, 2, 63, 511, 4095, 131_071, 1_000_000]


def frequencies(head_dim: int, theta: float = 10_000.0) -> Floats:
    return (theta ** (-np.arange(0, head_dim, 2) / head_dim)).astype(np.float32)


def table(isa: str, head_dim: int, position: int) -> tuple[Floats, Floats]:
    """Read cos and sin off the rotation of (1, 0) pairs: 1 cos - 0 sin and 0 cos + 1 sin."""
    x = np.zeros((1, head_dim), np.float32)
    x[0, : head_dim // 2] = 1
    turned = testing.rope(isa, x, head_dim, position, frequencies(head_dim))[0]
    return turned[: head_dim // 2].copy(), turned[head_dim // 2 :].copy()


@pytest.mark.parametrize("position", POSITIONS)
@each_head_dim
@each_isa
def test_sines_and_cosines_are_rounded_from_the_float32_angle(
    isa: str, head_dim: int, position: int
) -> None:
    cos, sin = table(isa, head_dim, position)
    angle = (np.float32(position) * frequencies(head_dim)).astype(np.float64)
    # Half a unit by the rounding to float32; the float64 before it adds far less.
    assert ops.ulps(cos, np.cos(angle)).max() <= 0.501
    assert ops.ulps(sin, np.sin(angle)).max() <= 0.501


@pytest.mark.parametrize("position", POSITIONS)
@each_head_dim
@each_isa
def test_rotation_equals_its_replay(isa: str, head_dim: int, position: int) -> None:
    tokens, heads, half = 3, 5, head_dim // 2
    x = samples.floats(head_dim, tokens, heads * head_dim)
    actual = testing.rope(isa, x, head_dim, position, frequencies(head_dim))
    tables = [table(isa, head_dim, position + t) for t in range(tokens)]
    cos, sin = (np.array(rows)[:, None] for rows in zip(*tables, strict=True))  # (tokens, 1, half)
    first, second = np.split(x.reshape(tokens, heads, head_dim), [half], axis=-1)
    expected = np.concatenate(
        [fma(first, cos, -(second * sin)), fma(second, cos, first * sin)], axis=-1
    )
    assert_same_bits(actual, expected.reshape(x.shape))


@each_head_dim
@each_isa
def test_position_zero_changes_nothing(isa: str, head_dim: int) -> None:
    x = samples.floats(1, 1, 3 * head_dim)
    assert_same_bits(testing.rope(isa, x, head_dim, 0, frequencies(head_dim)), x)


@pytest.mark.parametrize("position", [1, 100, 8191])
@each_head_dim
@each_isa
def test_rotation_is_close_to_the_truth(isa: str, head_dim: int, position: int) -> None:
    x = samples.floats(2, 4, 2 * head_dim)
    positions = position + np.arange(4)
    actual = testing.rope(isa, x, head_dim, position, frequencies(head_dim))
    pairs = x.reshape(4, 2, 2, head_dim // 2).astype(np.float64)
    truth = ops.rope(x.reshape(4, 2, head_dim), positions, 10_000.0).reshape(x.shape)
    length = np.linalg.norm(pairs, axis=2, keepdims=True)
    # The angle carries two roundings, frequency and product, and turns the pair by its error; then
    # come the table's rounding, the product and the sum, each at most of the pair's length.
    angle = positions[:, None, None, None] * frequencies(head_dim).astype(np.float64)
    bound = 1.01 * UNIT_ROUNDOFF * length * (2 * angle + 4)
    bound = np.broadcast_to(bound, pairs.shape).reshape(x.shape)
    assert (np.abs(actual - truth) <= bound).all()


@pytest.mark.parametrize("pairs", [1, 3, 12])
@each_isa
def test_columns_beyond_the_pairs_stay(isa: str, pairs: int) -> None:
    x = samples.floats(4, 3, 2 * 40)
    whole = testing.rope(isa, x, 40, 5, frequencies(2 * pairs)).reshape(3, 2, 40)
    heads = x.reshape(3, 2, 40)
    assert_same_bits(whole[..., 2 * pairs :].copy(), heads[..., 2 * pairs :].copy())
    part = heads[..., : 2 * pairs].reshape(3, -1).copy()
    turned = testing.rope(isa, part, 2 * pairs, 5, frequencies(2 * pairs))
    assert_same_bits(whole[..., : 2 * pairs].reshape(3, -1).copy(), turned)


def test_isas_agree_on_extreme_values() -> None:
    x = samples.hostile_activations(3, 4, 128)
    first, *others = [testing.rope(isa, x, 64, 77, frequencies(64)) for isa in samples.ISAS]
    for other in others:
        assert_same_bits(other, first)
