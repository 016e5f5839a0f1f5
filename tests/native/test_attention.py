"""Attention over the pages of a cache: by hand, against float64, and by its laws.

A page is 64 positions, a split 512; the truth is computed from what the cache keeps of keys and
values (`reference/kv_cache.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from inferno import _native
from reference import kv_cache, ops

from . import samples
from .float32 import UNIT_ROUNDOFF, Floats, assert_same_bits, fma, reduce_lanes
from .samples import ISAS

testing = _native.testing

HEAD_DIMS = [8, 40, 64, 80, 128, 256]
GROUPS = [1, 2, 3, 5, 8]
LENGTHS = [1, 2, 3, 63, 64, 65, 66, 511, 512, 513, 514, 1030]
GEOMETRIES = [(8, 5), (40, 8), (64, 3), (80, 1), (128, 2), (256, 1)]  # (head_dim, group)
KV_HEADS = 2
PAGE, SPLIT = 64, 512

CACHES = _native.cache_types()

each_cache = pytest.mark.parametrize("cache", CACHES)
each_isa = pytest.mark.parametrize("isa", ISAS)
each_length = pytest.mark.parametrize("length", LENGTHS)
each_geometry = pytest.mark.parametrize(
    ("head_dim", "group"), [pytest.param(*g, id=f"{g[0]}x{g[1]}") for g in GEOMETRIES]
)


def attend(isa: str, q: Floats, k: Floats, v: Floats, cache: str = "f16", **options: Any) -> Floats:
    """Attend: q (tokens, heads, head_dim), k and v (length, kv_heads, head_dim) -> like q."""
    scale = options.pop("scale", q.shape[2] ** -0.5)
    return testing.attention(isa, cache, q, k, v, scale, **options)


def draw(seed: int, tokens: int, length: int, head_dim: int, group: int) -> tuple[Floats, ...]:
    """Draw q, k and v; with scores of a deviation of 3 some positions matter and most do not."""
    q = samples.floats(seed, min(tokens, length), KV_HEADS * group, head_dim) * np.float32(3)
    k, v = (samples.floats(seed + i, length, KV_HEADS, head_dim) for i in (1, 2))
    return q, k, v


def stored(x: Floats, cache: str = "f16") -> np.ndarray[Any, np.dtype[np.float64]]:
    """Keep what the cache keeps of values."""
    return kv_cache.values(cache, x).astype(np.float64)


def truth(q: Floats, k: Floats, v: Floats, cache: str, **options: Any) -> Any:
    """Attend in float64, to what is stored and with queries as keys are scored with them."""
    head_dim = q.shape[2]
    q, k = kv_cache.scored(cache, q, k)
    spare = q.shape[2] - head_dim  # what fills a last block
    v = np.pad(stored(v, cache), ((0, 0), (0, 0), (0, spare)))
    return ops.attention(q, k, v, head_dim**-0.5, **options)[..., :head_dim]


# --------------------------------------------------------------------------- by hand


@pytest.mark.parametrize("group", GROUPS)
@each_cache
@each_isa
def test_a_query_that_matches_one_key_returns_its_value(isa: str, cache: str, group: int) -> None:
    # Key p is the p-th unit vector, so query h scores 200 at position h and 0 elsewhere, and
    # e^-200 counts as nothing: the answer is the value, as the cache keeps it, to the bit.
    length = head_dim = 80
    heads = KV_HEADS * group
    k = np.repeat(np.eye(length, dtype=np.float32)[:, None], KV_HEADS, axis=1)
    v = samples.floats(0, length, KV_HEADS, head_dim)
    wanted = np.arange(heads) * 79 // max(heads - 1, 1)
    q = np.zeros((1, heads, head_dim), np.float32)
    q[0, np.arange(heads), wanted] = 400
    actual = attend(isa, q, k, v, cache, scale=0.5)
    expected = stored(v, cache)[wanted, np.arange(heads) // group].astype(np.float32)
    assert_same_bits(actual[0], expected)


@pytest.mark.parametrize("length", [1, 2, 4, 64, 128, 512, 1024])
@each_cache
@each_isa
def test_equal_scores_average_the_values(isa: str, cache: str, length: int) -> None:
    # Keys of zero: every weight is e^0 = 1, sums of small whole numbers and 1 / 2^n are exact.
    q = samples.floats(1, 1, 4, 16)
    k = np.zeros((length, KV_HEADS, 16), np.float32)
    v = np.random.default_rng(2).integers(-9, 10, k.shape).astype(np.float32)
    v[:, :, 0] = 127  # so that q8_0 has a scale of 1
    actual = attend(isa, q, k, v, cache)
    expected = np.repeat(v.mean(axis=0, dtype=np.float64), 2, axis=0)
    assert np.array_equal(actual[0], expected)


@each_isa
def test_every_token_sees_itself_and_what_came_before(isa: str) -> None:
    length = 130
    q = np.zeros((length, KV_HEADS, 8), np.float32)
    k = np.zeros((length, KV_HEADS, 8), np.float32)
    v = np.zeros((length, KV_HEADS, 8), np.float32)
    v[:, :, 0] = np.arange(1, length + 1)[:, None]  # the mean of 1 .. n is (n + 1) / 2
    actual = attend(isa, q, k, v)[:, 0, 0]
    expected = (np.arange(1, length + 1) + 1) / 2
    assert ops.ulps(actual, expected).max() <= 2  # 1 / n and the product round


@each_isa
def test_keys_and_values_beyond_f16_are_stored_as_its_largest(isa: str) -> None:
    q = np.zeros((1, 1, 8), np.float32)
    k = np.full((1, 1, 8), 1e9, np.float32)
    v = np.float32([[[1e6, -1e6, 65504, 65519, 65520, -3e38, np.inf, -np.inf]]])
    actual = attend(isa, q, k, v)[0, 0]
    assert actual.tolist() == [65504, -65504, 65504, 65504, 65504, -65504, 65504, -65504]


# --------------------------------------------------------------------------- against float64


def error_bound(q: Floats, k: Floats, v: Floats, cache: str) -> Any:
    """Bound |attention - truth| by its roundings, to first order; (tokens, heads, head_dim).

    The relative error of a weight, in units of 2^-24:
    - a score is a chain of head_dim steps and a product, (head_dim + 1) scale |q| |k|; taking off
      the maximum rounds, by maximum - score in all while the maximum rises;
    - exp is within a unit in the last place: 2;
    - rescaling, once a page and once a split, is such an exp and a product: 3;
    - sums are chains of the positions of a split, then of the splits; reciprocal and product: 2;
    - q8_0 has a rounding more, of a weight times a scale. Its scores have fewer.
    It enters the sum of the values weighted with |v|, and the sum of the weights with |answer|.
    """
    tokens, heads, head_dim = q.shape
    length, kv_heads, _ = k.shape
    bound = np.zeros(q.shape)
    q, k = (x.astype(np.float64) for x in kv_cache.scored(cache, q, k))
    v = stored(v, cache)
    for token, head in product(range(tokens), range(heads)):
        visible = length - tokens + token + 1
        pages, splits = -(-visible // PAGE), -(-visible // SPLIT)
        keys, values = (x[:visible, head * kv_heads // heads] for x in (k, v))
        row = q[token, head] * head_dim**-0.5
        scores = keys @ row
        exponent = (head_dim + 1) * np.abs(keys) @ np.abs(row) + scores.max() - scores
        relative = exponent + 2 + 3 * (pages + splits) + min(visible, SPLIT) + splits + 3
        weights = ops.softmax(scores)
        errors = (weights * relative) @ np.abs(values)
        errors += (weights @ relative) * np.abs(weights @ values)
        bound[token, head] = 1.01 * UNIT_ROUNDOFF * errors
    return bound


@each_length
@each_geometry
@each_cache
@each_isa
def test_attention_is_close_to_the_truth(
    isa: str, cache: str, head_dim: int, group: int, length: int
) -> None:
    q, k, v = draw(length, 3, length, head_dim, group)
    error = np.abs(attend(isa, q, k, v, cache) - truth(q, k, v, cache))
    assert (error <= error_bound(q, k, v, cache)).all()


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@each_cache
@each_isa
def test_every_geometry_is_close_to_the_truth(
    isa: str, cache: str, head_dim: int, group: int
) -> None:
    q, k, v = draw(7, 5, 67, head_dim, group)
    error = np.abs(attend(isa, q, k, v, cache) - truth(q, k, v, cache))
    assert (error <= error_bound(q, k, v, cache)).all()


# --------------------------------------------------------------------------- replayed


def replay(q: Floats, k: Floats, v: Floats, cache: str) -> Floats:
    """Attend in the order of the specification: pages within splits, every step in float32.

    Exponentials are the kernels' own, which have a test of theirs.
    """
    tokens, heads, head_dim = q.shape
    length, kv_heads, _ = k.shape
    k, v = (x.repeat(heads // kv_heads, axis=1) for x in (k, v))
    k, v = (np.pad(x, ((0, -length % PAGE), (0, 0), (0, 0))).swapaxes(0, 1) for x in (k, v))
    whole = np.ones((1, 1, 1), np.float32)  # the scale of values that need none
    if cache == "q8_0":
        score_step = quantized_scores(q, k)
        value_scales, v = kv_cache.quantized_values(v)
        value_scales = value_scales.repeat(32, axis=-1).reshape(*v.shape[:2], -1)[..., :head_dim]
        v = v.reshape(*v.shape[:2], -1)[..., :head_dim]
    else:
        k, v = kv_cache.values(cache, k), kv_cache.values(cache, v)
        score_step = float_scores(q, k)
        value_scales = np.broadcast_to(whole, v.shape)
    last = length - tokens + np.arange(tokens)[:, None, None]  # the position of each token
    low = np.float32(-np.inf)

    def exp(x: Floats) -> Floats:
        return testing.exp(ISAS[-1], x.reshape(-1)).reshape(x.shape)

    def visit(first: int) -> tuple[Floats, Floats, Floats]:
        """Go through the split at `first`: value sums, maximum and sum of the weights."""
        sums = np.zeros(q.shape, np.float32)
        maximum = np.full((tokens, heads), low)
        total = np.zeros((tokens, heads), np.float32)
        for base in range(first, min(first + SPLIT, length), PAGE):
            scores = score_step(slice(base, base + PAGE)) * np.float32(head_dim**-0.5)
            scores = np.where(base + np.arange(PAGE) <= last, scores, low)
            highest = np.maximum(maximum, scores.max(axis=-1))
            shift = np.where(highest > low, highest, np.float32(0))  # low: nothing is visible yet
            factor = exp(maximum - shift)
            weights = exp(scores - shift[..., None])
            lanes = np.zeros((tokens, heads, 16), np.float32)
            for group in range(0, PAGE, 16):
                lanes = lanes + weights[..., group : group + 16]
            total = total * factor + reduce_lanes(lanes, np.add)
            sums = sums * factor[..., None]
            for p in range(PAGE):
                weight = weights[..., p, None] * value_scales[:, base + p]
                sums = fma(weight, v[:, base + p], sums)
            maximum = highest
        return sums, maximum, total

    sums, maximum, total = visit(0)
    for first in range(SPLIT, length, SPLIT):
        more, theirs, weight = visit(first)
        highest = np.maximum(maximum, theirs)
        keep, take = exp(maximum - highest), exp(theirs - highest)
        sums = fma(more, take[..., None], sums * keep[..., None])
        total = fma(weight, take, total * keep)
        maximum = highest
    return sums * (np.float32(1) / total)[..., None]


def float_scores(q: Floats, k: Floats) -> Callable[[slice], Floats]:
    """Score by one chain over the dimensions."""

    def step(page: slice) -> Floats:
        scores = np.zeros((*q.shape[:2], PAGE), np.float32)
        for d in range(q.shape[2]):
            scores = fma(q[:, :, d, None], k[:, page, d], scores)
        return scores

    return step


def quantized_scores(q: Floats, k: Floats) -> Callable[[slice], Floats]:
    """Score by one chain over blocks of 32 dimensions, whose codes are multiplied in integers."""
    scales, codes = kv_cache.quantized_queries(q)  # (tokens, heads, blocks, …)
    key_scales, key_codes = kv_cache.quantized_keys(k)  # (heads, positions, blocks, …)

    def step(page: slice) -> Floats:
        scores = np.zeros((*q.shape[:2], PAGE), np.float32)
        for b in range(codes.shape[2]):
            dots = np.einsum("thi,hpi->thp", codes[:, :, b], key_codes[:, page, b])  # < 2^24
            scores = fma(dots, key_scales[:, page, b, 0] * scales[:, :, b], scores)
        return scores

    return step


@functools.cache
def replayed_case(cache: str, head_dim: int, group: int, length: int) -> tuple[Floats, ...]:
    q, k, v = draw(length + 1, 3, length, head_dim, group)
    return q, k, v, replay(q, k, v, cache)


@pytest.mark.parametrize("length", [1, 3, 17, 64, 65, 66, 130, 513, 1030])
@each_geometry
@each_cache
@each_isa
def test_attention_equals_its_replay(
    isa: str, cache: str, head_dim: int, group: int, length: int
) -> None:
    q, k, v, expected = replayed_case(cache, head_dim, group, length)
    assert_same_bits(attend(isa, q, k, v, cache), expected)


# --------------------------------------------------------------------------- laws


def shape_of_scores(name: str, k: Floats) -> Floats:
    """Make the scores rise, fall or tie along the positions: the maximum moves always or never."""
    along = np.linspace(0, 1, len(k), dtype=np.float32)[:, None, None]
    return {"random": k, "rising": k + 40 * along, "falling": k - 40 * along, "equal": 0 * k}[name]


@pytest.mark.parametrize("scores", ["random", "rising", "falling", "equal"])
@each_length
@each_geometry
@each_cache
def test_no_way_of_cutting_the_work_changes_a_bit(
    cache: str, head_dim: int, group: int, length: int, scores: str
) -> None:
    tokens = 7
    q, k, v = draw(length, tokens, length, head_dim, group)
    q, k = np.abs(q), shape_of_scores(scores, k)
    whole = attend(ISAS[0], q, k, v, cache, unit_tokens=tokens)
    for isa, unit_tokens, splits_apart in product(ISAS, (1, 2, 4, tokens), (False, True)):
        cut = attend(isa, q, k, v, cache, unit_tokens=unit_tokens, splits_apart=splits_apart)
        assert_same_bits(cut, whole)


@pytest.mark.parametrize(("length", "chunk"), [(3, 1), (66, 3), (130, 65), (530, 19)])
@each_geometry
@each_cache
@each_isa
def test_the_last_tokens_alone_equal_the_whole(
    isa: str, cache: str, head_dim: int, group: int, length: int, chunk: int
) -> None:
    q, k, v = draw(3, length, length, head_dim, group)
    whole = attend(isa, q, k, v, cache, unit_tokens=4)
    last = attend(isa, q[-chunk:].copy(), k, v, cache, unit_tokens=4)
    assert_same_bits(last, whole[-chunk:].copy())
    # A chunk in the middle is the end of a shorter cache.
    end = length - length // 3
    middle = attend(isa, q[end - 1 : end].copy(), k[:end].copy(), v[:end].copy(), cache)
    assert_same_bits(middle, whole[end - 1 : end].copy())


@each_isa
def test_a_value_of_minus_zero_does_not_depend_on_the_tile(isa: str) -> None:
    q, k, v = (np.zeros((n, 1, 8), np.float32) for n in (2, 66, 66))
    q[:, :, 0] = 1
    k[:, 0, 0] = -200
    k[[0, 1, 64, 65], 0, 0] = 0, -87, 3, 0
    v[:] = -0.0
    v[1] = -6e-8  # times e^-87 is the smallest subnormal, which the next page's maximum makes -0
    v[65] = 5
    alone, together = (attend(isa, q, k, v, scale=1.0, unit_tokens=n) for n in (1, 2))
    assert_same_bits(together, alone)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -65504.0])
@pytest.mark.parametrize("head_dim", [40, 64])
@each_cache
@each_isa
def test_what_a_page_held_before_does_not_matter(
    isa: str, cache: str, head_dim: int, garbage: float
) -> None:
    q, k, v = draw(6, 3, 67, head_dim, 2)
    expected = attend(isa, q, k, v, cache, unit_tokens=2)
    assert_same_bits(attend(isa, q, k, v, cache, unit_tokens=2, garbage=garbage), expected)


@pytest.mark.parametrize("poison", [0.0, 3e38, -3e38, np.inf, -np.inf, np.nan])
@each_cache
@each_isa
def test_the_future_does_not_reach_the_past(isa: str, cache: str, poison: float) -> None:
    # 66 positions; the tile of 4 tokens ends 3 positions after the first of them, in another page.
    q, k, v = draw(5, 4, 66, 40, 3)
    expected = attend(isa, q, k, v, cache, unit_tokens=4)
    for future in (1, 2, 3):
        bad_k, bad_v = k.copy(), v.copy()
        bad_k[-future:] = poison
        bad_v[-future:] = poison
        actual = attend(isa, q, bad_k, bad_v, cache, unit_tokens=4)
        assert_same_bits(actual[:-future].copy(), expected[:-future].copy())


@each_isa
def test_heads_do_not_see_each_other(isa: str) -> None:
    q, k, v = draw(6, 2, 70, 64, 3)
    both = attend(isa, q, k, v)
    for head in range(KV_HEADS):
        queries = slice(3 * head, 3 * head + 3)
        keys, values = (x[:, head : head + 1].copy() for x in (k, v))
        assert_same_bits(attend(isa, q[:, queries].copy(), keys, values), both[:, queries].copy())


@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e3, 1e30])
@each_cache
def test_isas_agree_on_queries_of_any_size(cache: str, size: float) -> None:
    q, k, v = draw(8, 3, 200, 80, 5)
    first, *others = [attend(isa, q * np.float32(size), k, v, cache) for isa in ISAS]
    assert np.isfinite(first).all()
    for other in others:
        assert_same_bits(other, first)


@pytest.mark.parametrize("seed", range(3))
@each_cache
def test_isas_agree_on_keys_and_values_at_the_ends_of_f16(cache: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.float32([65504, -65504, 1e9, 6e-8, -6e-8, 3e-8, 6.1e-5, 0, -0.0, 1, 2049, 4098.9])
    q = samples.floats(seed, 3, 6, 40) * np.float32(1e-5)
    k, v = rng.choice(ends, (2, 140, KV_HEADS, 40))
    first, *others = [attend(isa, q, k, v, cache) for isa in ISAS]
    assert np.isfinite(first).all()
    for other in others:
        assert_same_bits(other, first)


# --------------------------------------------------------------------------- q8_0


@pytest.mark.parametrize("size", [1e-9, 3e-7, 2e-6, 1e-4, 1.0, 300.0, 6e4, 6e5, 1e9])
@each_isa
def test_a_value_is_kept_to_half_a_step(isa: str, size: float) -> None:
    # One position: the answer is the value. Steps are of f16, and below its normal numbers so far
    # apart that the largest of a block may be clipped, by a quarter at most.
    v = samples.floats(3, 1, 1, 40) * np.float32(size)
    q, k = np.zeros_like(v), np.zeros_like(v)
    found = attend(isa, q, k, v, "q8_0")[0, 0]
    assert_same_bits(found, stored(v, "q8_0").astype(np.float32)[0, 0])
    bounded = kv_cache.bounded("q8_0", v[0, 0])
    for block in (slice(0, 32), slice(32, 40)):
        amax = np.abs(bounded[block]).max()
        step = max(amax / 127, 2.0**-24)
        normal = step >= 2.0**-14
        error = np.abs(found[block] - bounded[block]).max()
        assert error <= (0.501 if normal else 64) * step
        assert normal or error <= max(0.25 * amax + step, 127 * 2.0**-25)


@each_isa
def test_a_key_that_is_no_number_is_seen_and_a_value_is_bounded(isa: str) -> None:
    q, k, v = draw(2, 1, 1, 40, 1)
    k[0, 0, 35] = np.nan
    assert np.isnan(attend(isa, q, k, v, "q8_0")[0, 0]).all()
    q, k, v = draw(2, 1, 3, 40, 1)
    v[1, 0, 35], v[2, 1, 0] = np.nan, np.inf
    assert np.isfinite(attend(isa, q, k, v, "q8_0")).all()


# --------------------------------------------------------------------------- windows, caps, sinks

WINDOWS = [1, 2, 17, 63, 64, 65, 200, 512, 600]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("length", [3, 66, 513, 1030])
@each_cache
@each_isa
def test_a_window_is_close_to_the_truth(isa: str, cache: str, length: int, window: int) -> None:
    q, k, v = draw(window, 5, length, 40, 3)
    found = attend(isa, q, k, v, cache, window=window)
    error = np.abs(found - truth(q, k, v, cache, window=window))
    assert (error <= error_bound(q, k, v, cache)).all()


@pytest.mark.parametrize("window", [1, 17, 64, 65, 300, 600])
@pytest.mark.parametrize("length", [66, 513, 1030])
@each_geometry
def test_no_way_of_cutting_windowed_work_changes_a_bit(
    head_dim: int, group: int, length: int, window: int
) -> None:
    """Windows of one tile begin on different pages, and some rows see nothing of a split."""
    tokens = 7
    q, k, v = draw(length, tokens, length, head_dim, group)
    options = {"window": window, "softcap": 2.0}
    whole = attend(ISAS[0], q, k, v, unit_tokens=tokens, **options)
    for isa, unit_tokens, splits_apart in product(ISAS, (1, 2, 4, tokens), (False, True)):
        cut = attend(isa, q, k, v, unit_tokens=unit_tokens, splits_apart=splits_apart, **options)
        assert_same_bits(cut, whole)


@each_cache
@each_isa
def test_what_a_window_hides_does_not_matter(isa: str, cache: str) -> None:
    q, k, v = draw(4, 4, 700, 40, 3)
    expected = attend(isa, q, k, v, cache, window=20, unit_tokens=4)
    k[:600] = np.nan
    v[:600] = 3e38
    assert_same_bits(attend(isa, q, k, v, cache, window=20, unit_tokens=4), expected)


@each_isa
def test_a_window_as_long_as_the_text_is_none(isa: str) -> None:
    q, k, v = draw(4, 4, 130, 40, 3)
    assert_same_bits(attend(isa, q, k, v, window=130), attend(isa, q, k, v))


@pytest.mark.parametrize("limit", [0.5, 5.0, 50.0])
@each_isa
def test_capped_scores_are_close_to_the_truth(isa: str, limit: float) -> None:
    q, k, v = draw(9, 5, 130, 64, 2)
    actual = attend(isa, q, k, v, softcap=limit)
    expected = truth(q, k, v, "f16", limit=limit)
    # The cap is off by a unit or two of the limit, and weights by as much relatively.
    bound = error_bound(q, k, v, "f16") + 4 * UNIT_ROUNDOFF * limit * np.abs(stored(v)).max()
    assert (np.abs(actual - expected) <= bound).all()


@pytest.mark.parametrize("sink", [-1e30, -3.0, 0.0, 3.0, 200.0])
@pytest.mark.parametrize("splits_apart", [False, True])
@each_isa
def test_sinks_are_close_to_the_truth(isa: str, sink: float, splits_apart: bool) -> None:
    q, k, v = draw(10, 5, 600, 40, 3)
    sinks = (sink + samples.floats(0, q.shape[1])).astype(np.float32)
    actual = attend(isa, q, k, v, sinks=sinks, splits_apart=splits_apart)
    error = np.abs(actual - truth(q, k, v, "f16", sinks=sinks))
    assert (error <= error_bound(q, k, v, "f16")).all()


@each_isa
def test_a_sink_far_below_every_score_changes_nothing(isa: str) -> None:
    q, k, v = draw(10, 5, 70, 40, 3)
    sinks = np.full(q.shape[1], -1e30, np.float32)
    np.testing.assert_allclose(attend(isa, q, k, v, sinks=sinks), attend(isa, q, k, v), rtol=2e-7)


@pytest.mark.parametrize("options", [{"softcap": 5.0}, {"sinks": np.zeros(6, np.float32)}])
@each_cache
@each_isa
def test_a_score_that_is_no_number_stays_seen(
    isa: str, cache: str, options: dict[str, Any]
) -> None:
    q, k, v = draw(11, 2, 70, 40, 3)
    q[1, 0, 3] = np.nan
    found = attend(isa, q, k, v, cache, **options)
    assert np.isnan(found[1, 0]).all()
    assert np.isfinite(found[0]).all()


@each_cache
def test_isas_agree_on_capped_scores_and_sinks(cache: str) -> None:
    q, k, v = draw(12, 5, 600, 80, 5)
    options = {"softcap": 3.0, "sinks": samples.floats(1, q.shape[1]), "window": 300}
    first, *others = [attend(isa, q, k, v, cache, **options) for isa in ISAS]
    for other in others:
        assert_same_bits(other, first)
