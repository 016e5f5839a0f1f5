"""The sampler against its description in float64 numpy, and the edges people fall over."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engines
from inferno import Engine, InfernoError, InvalidOption, _native

Floats = npt.NDArray[np.float32]

OFF: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "typical_p": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repeat_last_n": -1,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": set(),
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "logit_bias": {},
    "suppress_tokens": [],
    "seed": 0,
    "choice": 0,
}


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


class Drawer:
    """Draws from given logits with the sampler of an engine; what is not said is off."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def sampler(self, num_tokens: int, **options: Any) -> _native.Sampler:
        return _native.Sampler(self._engine._executor, num_tokens=num_tokens, **{**OFF, **options})

    def __call__(self, logits: Any, count: int = 1, **options: Any) -> list[int]:
        """Draw at positions 0 to count - 1, with nothing seen before."""
        logits = np.array(logits, np.float32)
        sampler = self.sampler(len(logits), **options)
        return [sampler.sample(logits, position) for position in range(count)]


@pytest.fixture(scope="module")
def draw(engine: Engine) -> Drawer:
    return Drawer(engine)


def random_logits(count: int, seed: int = 0, spread: float = 3.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(count) * spread).astype(np.float32)


# ---- the description -----------------------------------------------------------------------------


def described(
    logits: Floats, position: int, prompt: list[int], generated: list[int], o: dict[str, Any]
) -> int:
    """Choose a token by the words of the guide, one after the other."""
    x = logits.astype(np.float64)
    for token, bias in o["logit_bias"].items():
        x[token] = -np.inf if bias <= -100 else x[token] + bias
    x[o["suppress_tokens"]] = -np.inf
    text = [(token, False) for token in prompt] + [(token, True) for token in generated]
    window = [*text] if o["repeat_last_n"] < 0 else text[max(0, len(text) - o["repeat_last_n"]) :]
    for token in {token for token, _ in window}:
        penalty = np.float64(np.float32(o["repetition_penalty"]))
        x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
    drawn = [token for token, is_generated in window if is_generated]
    for token in set(drawn):
        x[token] -= o["presence_penalty"] + o["frequency_penalty"] * drawn.count(token)
    for token, penalty in dry_penalties([token for token, _ in text], o).items():
        x[token] -= penalty
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    if o["temperature"] == 0:
        return order[0]
    if o["top_k"]:
        order = order[: o["top_k"]]
    weights = np.exp((x[order] - x[order[0]]) / o["temperature"])
    if o["typical_p"] < 1:
        chances = weights / weights.sum()
        surprise = -np.log(chances)
        distance = np.abs(surprise - (chances * surprise).sum())
        typical = np.argsort(distance, kind="stable")
        count = int(np.searchsorted(np.cumsum(chances[typical]), o["typical_p"])) + 1
        kept = np.sort(typical[:count])  # best first again
        order, weights = [order[i] for i in kept], weights[kept]
    # top-p: the shortest front whose mass reaches it.
    front = int(np.searchsorted(np.cumsum(weights), o["top_p"] * weights.sum())) + 1
    weights = weights[:front]
    weights = weights[
        (weights >= np.float32(o["min_p"]) * weights[0]) | (np.arange(len(weights)) == 0)
    ]
    key = o["seed"], position
    if _native.testing.uniform(*key, 2**32 | o["choice"]) < o["xtc_probability"]:
        likely = int((weights >= o["xtc_threshold"] * weights.sum()).sum())
        order, weights = order[max(0, likely - 1) :], weights[max(0, likely - 1) :]
    target = _native.testing.uniform(*key, o["choice"]) * weights.sum()
    return order[int(np.searchsorted(np.cumsum(weights), target, side="right"))]


def dry_penalties(text: list[int], o: dict[str, Any]) -> dict[int, float]:
    """Try every earlier token as one that would be said again."""
    if o["dry_penalty_last_n"] >= 0:
        text = text[max(0, len(text) - o["dry_penalty_last_n"]) :]
    breakers, longest = o["dry_sequence_breakers"], {}
    for place, token in enumerate(text):
        length = 0
        while (
            length < place
            and text[place - 1 - length] == text[len(text) - 1 - length]
            and text[len(text) - 1 - length] not in breakers
        ):
            length += 1
        if token not in breakers:
            longest[token] = max(longest.get(token, 0), length)
    return {
        token: o["dry_multiplier"] * o["dry_base"] ** (length - o["dry_allowed_length"])
        for token, length in longest.items()
        if length >= o["dry_allowed_length"]
    }


OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.3},
    {"temperature": 2.5, "seed": 2**64 - 1},
    {"choice": 3},
    {"choice": 2**32 - 1, "seed": 1},
    {"top_k": 1},
    {"top_k": 5, "temperature": 2.0},
    {"top_k": 10_000},
    {"typical_p": 0.9},
    {"typical_p": 0.2, "temperature": 2.0},
    {"typical_p": 0.5, "top_k": 8, "top_p": 0.9},
    {"typical_p": 0.7, "min_p": 0.3, "temperature": 1.5},
    {"top_p": 0.6},
    {"top_p": 0.05},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.05, "temperature": 0.8},
    {"repetition_penalty": 1.4},
    {"repetition_penalty": 0.7, "temperature": 0.0},
    {"presence_penalty": 1.5, "frequency_penalty": -0.5},
    {"frequency_penalty": 2.0, "temperature": 0.0},
    {"repetition_penalty": 1.4, "presence_penalty": 1.0, "repeat_last_n": 4},
    {"repetition_penalty": 5.0, "frequency_penalty": 4.0, "repeat_last_n": 0},
    {"frequency_penalty": 1.0, "repeat_last_n": 2, "temperature": 0.0},
    {"dry_multiplier": 0.8},
    {"dry_multiplier": 3.0, "dry_allowed_length": 1, "temperature": 0.0},
    {"dry_multiplier": 3.0, "dry_base": 4.0, "dry_penalty_last_n": 7},
    {"dry_multiplier": 3.0, "dry_allowed_length": 1, "dry_sequence_breakers": {2}},
    {"dry_multiplier": 3.0, "dry_allowed_length": 1, "dry_sequence_breakers": {4}},
    {"dry_multiplier": 3.0, "dry_penalty_last_n": 0},
    {"xtc_probability": 1.0},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05, "temperature": 2.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.02, "top_k": 6, "top_p": 0.9},
    {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    {"logit_bias": {0: 5.0, 3: -100, 7: -2.5}},
    {"logit_bias": {1: 3.0}, "repetition_penalty": 1.2, "presence_penalty": 0.5, "top_p": 0.9},
    {"suppress_tokens": [1, 5, 9], "logit_bias": {5: 100.0}},
    {"suppress_tokens": list(range(9)), "temperature": 0.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=[str(o) for o in OPTIONS])
@pytest.mark.parametrize("num_tokens", [10, 300])
def test_it_chooses_as_described(draw: Drawer, num_tokens: int, options: dict[str, Any]) -> None:
    prompt, generated = [1, 4, 4, 9, 0, 2, 4, 4, 9, 7, 4], [4, 9, 0, 2, 4, 4, 9]
    sampler = draw.sampler(num_tokens, **options)
    sampler.accept(np.array(prompt, np.int32), False)
    sampler.accept(np.array(generated, np.int32), True)
    for position in range(60):
        logits = random_logits(num_tokens, seed=position)
        expected = described(logits, position, prompt, generated, {**OFF, **options})
        assert sampler.sample(logits, position) == expected, position


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999, 1.0])
def test_a_nucleus_of_thousands_is_found(draw: Drawer, top_p: float) -> None:
    """Flat logits: far more tokens are kept than are sorted at first."""
    logits = random_logits(9000, spread=0.1)
    options = {"top_p": top_p, "seed": 5}
    found = draw(logits, 20, **options)
    assert found == [described(logits, i, [], [], {**OFF, **options}) for i in range(20)]
    assert len(set(found)) > 15


@pytest.mark.parametrize("isa", _native.isas())
def test_every_instruction_set_draws_the_same(stories_gguf: Path, isa: str) -> None:
    logits = random_logits(500, spread=1.0)
    found = [
        Drawer(engines.load(stories_gguf, isa=i))(logits, 200, top_p=0.95, temperature=0.9)
        for i in (isa, "scalar")
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) > 50


@pytest.mark.parametrize("options", [{"typical_p": 0.9}, {"xtc_probability": 1.0, "top_p": 0.99}])
def test_filters_of_thousands_of_tokens_are_as_described(
    draw: Drawer, options: dict[str, Any]
) -> None:
    logits = random_logits(9000, spread=0.1)
    found = draw(logits, 10, **options)
    assert found == [described(logits, i, [], [], {**OFF, **options}) for i in range(10)]


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_dry_finds_what_looking_everywhere_finds(draw: Drawer, data: Any) -> None:
    text = data.draw(st.lists(st.integers(0, 3), max_size=40))
    options = {
        "temperature": 0.0,
        "dry_multiplier": 1.0,
        "dry_base": 2.0,  # and integers as logits: no rounding
        "dry_allowed_length": data.draw(st.integers(1, 3)),
        "dry_penalty_last_n": data.draw(st.sampled_from([-1, 0, 1, 5, 20])),
        "dry_sequence_breakers": set(data.draw(st.lists(st.integers(0, 3), max_size=2))),
    }
    sampler = draw.sampler(4, **options)
    sampler.accept(np.array(text, np.int32), False)
    penalties = dry_penalties(text, options)
    for token in range(4):  # the largest logit that loses to another token says what the penalty is
        penalty = penalties.get(token, 0.0)
        for logit, wins in ((penalty + 1, True), (penalty - 1, False)):
            logits = np.full(5, -1e9, np.float32)[:4]
            other = (token + 1) % 4
            logits[token], logits[other] = logit, penalties.get(other, 0.0)
            assert (sampler.sample(logits, 0) == token) == wins, (token, penalty)


def test_a_batch_of_rows_is_what_each_row_gives(draw: Drawer) -> None:
    options = [{}, {"temperature": 0.0}, {"top_k": 3, "seed": 5}, {"repetition_penalty": 1.5}]
    samplers = [draw.sampler(100, **o) for o in options]
    samplers[3].accept(np.arange(50, dtype=np.int32), False)
    rows = np.stack([random_logits(103, seed=i) for i in range(4)])  # three rows pad the vocabulary
    positions = [0, 7, 2**40, 3]
    alone = [
        s.sample(row[:100].copy(), p) for s, row, p in zip(samplers, rows, positions, strict=True)
    ]
    assert _native.sample(samplers, rows, positions) == alone
    assert _native.sample(samplers[::-1], rows[::-1].copy(), positions[::-1]) == alone[::-1]
    assert _native.sample([], rows[:0], []) == []
    for wrong in (rows[:3], rows[:, :99].copy()):
        with pytest.raises(InfernoError):
            _native.sample(samplers, wrong, positions)
    with pytest.raises(InfernoError):
        _native.sample(samplers, rows, positions[:3])


# ---- the edges -----------------------------------------------------------------------------------


def test_greedy_takes_the_first_of_the_best(draw: Drawer) -> None:
    assert draw([1, 3, 3, 2], temperature=0.0) == [1]
    assert draw([5, 5, 5], temperature=0.0) == [0]
    assert draw([-3, -2, -2], temperature=0.0) == [1]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-40])
def test_a_temperature_near_zero_is_nearly_greedy(draw: Drawer, temperature: float) -> None:
    logits = random_logits(100)
    assert set(draw(logits, 50, temperature=temperature)) == {int(logits.argmax())}


def test_a_hot_temperature_is_nearly_uniform(draw: Drawer) -> None:
    logits = random_logits(50)
    assert len(set(draw(logits, 1000, temperature=100.0))) == 50


def test_zero_turns_top_k_off(draw: Drawer) -> None:
    flat = np.zeros(200)
    assert len(set(draw(flat, 500, top_k=0))) > 150
    assert len(set(draw(flat, 500, top_k=7))) == 7


def test_one_turns_top_p_off_and_zero_min_p(draw: Drawer) -> None:
    flat = np.zeros(1000)
    assert len(set(draw(flat, 2000, top_p=1.0, min_p=0.0))) > 800
    assert len(set(draw(flat, 2000, top_p=0.01))) == 10


def test_the_best_token_survives_every_filter(draw: Drawer) -> None:
    logits = random_logits(100)
    for options in ({"top_p": 1e-9}, {"min_p": 1.0}, {"top_k": 1}):
        assert set(draw(logits, 20, **options)) == {int(logits.argmax())}


def test_equal_logits_are_equally_likely(draw: Drawer) -> None:
    counts = np.bincount(draw(np.zeros(10), 5000), minlength=10)
    # 500 expected of each, with a standard deviation of 21.
    assert counts.min() > 395
    assert counts.max() < 605


def test_frequencies_are_the_probabilities(draw: Drawer) -> None:
    logits = np.log([0.5, 0.25, 0.15, 0.1])
    shares = np.bincount(draw(logits, 10_000, seed=3), minlength=4) / 10_000
    # Five standard deviations of the largest are 0.025.
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.15, 0.1], atol=0.025)


def test_what_is_impossible_is_never_drawn(draw: Drawer) -> None:
    logits = [0.0, -math.inf, 0.0, -math.inf]
    assert set(draw(logits, 200)) == {0, 2}
    assert draw(logits, temperature=0.0) == [0]


def test_a_draw_depends_on_seed_and_position_alone(draw: Drawer) -> None:
    logits = random_logits(500, spread=0.5)
    forwards = draw(logits, 50, seed=9)
    sampler = draw.sampler(500, seed=9)
    backwards = [sampler.sample(logits, position) for position in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert draw(logits, 50, seed=10) != forwards


def test_choices_of_one_seed_are_other_texts(draw: Drawer) -> None:
    logits = random_logits(500, spread=0.5)
    texts = {tuple(draw(logits, 20, seed=9, choice=choice)) for choice in range(5)}
    assert len(texts) == 5


def test_the_end_of_a_window_is_forgotten(draw: Drawer) -> None:
    logits = np.array([2.0, 1.0], np.float32)
    sampler = draw.sampler(2, temperature=0.0, repetition_penalty=10.0, repeat_last_n=3)
    sampler.accept(np.array([0], np.int32), True)
    for expected in (1, 1, 0):
        sampler.accept(np.array([1], np.int32), True)
        logits[1] = 1.0 if expected else 19.0  # beside a penalty of its own
        assert sampler.sample(logits * [1, 10 if expected else 1], 0) == expected


def test_a_long_repetition_is_a_ban_and_still_a_number(draw: Drawer) -> None:
    sampler = draw.sampler(3, dry_multiplier=100.0, dry_base=100.0)
    sampler.accept(np.array([0] * 2000, np.int32), True)
    drawn = {sampler.sample(np.array([1e20, 0, -math.inf], np.float32), i) for i in range(50)}
    assert drawn == {1}


def test_xtc_leaves_the_last_of_the_likely(draw: Drawer) -> None:
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    options = {"xtc_probability": 1.0, "xtc_threshold": 0.15}
    assert set(draw(logits, 300, **options)) == {2, 3}
    assert set(draw(logits, 300, **{**options, "xtc_probability": 0.5})) == {0, 1, 2, 3}
    assert set(draw(logits, 300, xtc_probability=1.0, xtc_threshold=0.35)) == {0, 1, 2, 3}
    assert set(draw(logits, 50, temperature=0.0, **options)) == {0}


def test_typical_tokens_may_leave_out_the_best(draw: Drawer) -> None:
    logits = np.log([0.4, *[0.6 / 40] * 40])
    assert 0 not in draw(logits, 200, typical_p=0.3)


def test_a_penalty_lowers_what_was_seen_whatever_its_sign(draw: Drawer) -> None:
    for logits in ([2.0, 1.9], [-1.9, -2.0]):
        sampler = draw.sampler(2, temperature=0.0, repetition_penalty=1.5)
        assert sampler.sample(np.array(logits, np.float32), 0) == 0
        sampler.accept(np.array([0], np.int32), False)
        assert sampler.sample(np.array(logits, np.float32), 0) == 1


def test_a_prompt_is_repeated_but_its_tokens_are_not_present_or_frequent(draw: Drawer) -> None:
    logits = np.array([2.0, 1.0], np.float32)
    for name in ("presence_penalty", "frequency_penalty"):
        sampler = draw.sampler(2, temperature=0.0, **{name: 1.5})
        sampler.accept(np.array([0], np.int32), False)
        assert sampler.sample(logits, 0) == 0
        sampler.accept(np.array([0], np.int32), True)
        assert sampler.sample(logits, 0) == 1


def test_frequency_counts_and_presence_does_not(draw: Drawer) -> None:
    logits = np.array([2.0, 1.0], np.float32)
    for name, chosen in (("presence_penalty", 0), ("frequency_penalty", 1)):
        sampler = draw.sampler(2, temperature=0.0, **{name: 0.3})
        sampler.accept(np.array([0] * 4, np.int32), True)
        assert sampler.sample(logits, 0) == chosen


def test_a_bias_of_minus_100_bans_and_of_100_forces(draw: Drawer) -> None:
    logits = np.array([50.0, 0.0, -40.0])
    for temperature in (0.0, 1.0):
        banned = draw(logits, 50, temperature=temperature, logit_bias={0: -100.0})
        assert 0 not in banned
        assert set(draw(logits, 50, temperature=temperature, logit_bias={2: 100.0})) == {2}
    # A ban holds whatever the logit.
    assert 0 not in draw([1e9, 0.0], 50, logit_bias={0: -100.0})


def test_a_bias_for_a_token_that_is_none_is_left_out(draw: Drawer) -> None:
    assert draw([1.0, 0.0], temperature=0.0, logit_bias={2: 100.0, 10**6: 100.0}) == [0]


def test_banning_every_token_is_an_error(draw: Drawer) -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(InvalidOption, match="bans every token"):
            draw([1.0, 2.0], temperature=temperature, logit_bias={0: -100.0, 1: -100.0})


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_logits_is_an_error(draw: Drawer, count: int) -> None:
    with pytest.raises(InfernoError):
        draw.sampler(2).sample(np.zeros(count, np.float32), 0)


@pytest.mark.parametrize("token", [512, 600, 2**31 - 1, -1, -(2**31)])
def test_a_token_outside_the_vocabulary_is_harmless(stories_gguf: Path, token: int) -> None:
    """Prompts may hold ids that no token has. In a process of its own: it might not survive."""
    program = f"""
import numpy as np
from inferno import Engine, InfernoError, _native
engine = Engine.load({str(stories_gguf)!r}, threads=1)
sampler = _native.Sampler(
    engine._executor, num_tokens=512, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0,
    repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=1.0, logit_bias={{}}, seed=0,
)
try:
    sampler.accept(np.array([{token}, 5], np.int32), True)
except InfernoError:
    pass
print(sampler.sample(np.arange(512, dtype=np.float32), 0))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "511\n"), done.stderr


def test_the_most_likely_logits_come_best_first() -> None:
    logits = random_logits(1000)
    order = np.argsort(-logits, kind="stable").tolist()
    for count in (1, 5, 999, 1000, 5000):
        found = _native.top_logits(logits, count)
        assert [token for token, _ in found] == order[:count]
        assert [logit for _, logit in found] == logits[order[:count]].tolist()
    assert _native.top_logits(logits, 0) == []
    assert [token for token, _ in _native.top_logits(np.zeros(5, np.float32), 3)] == [0, 1, 2]


def test_log_sum_exp_is_that_of_float64(engine: Engine) -> None:
    for count in (1, 255, 256, 257, 5000):
        logits = random_logits(count, spread=20.0)
        x = logits.astype(np.float64)
        expected = x.max() + np.log(np.exp(x - x.max()).sum())
        assert engine._executor.log_sum_exp(logits) == pytest.approx(expected, abs=1e-5)


def test_the_logarithm_of_a_sum_is_the_nearest_float64_or_its_neighbour(engine: Engine) -> None:
    for count in (1, 2, 3, 5, 7, 90, 91, 1000, 49_152, 151_936):  # e^0 is 1: the sum is exact
        found = engine._executor.log_sum_exp(np.zeros(count, np.float32))
        exact = Decimal(count).ln(Context(prec=40))
        assert abs(Decimal(found) - exact) < Decimal(math.ulp(found))


def test_log_probabilities_are_the_same_bits_in_every_instruction_set(stories_gguf: Path) -> None:
    def found(isa: str) -> list[str]:
        score = engines.load(stories_gguf, isa=isa).token_logprobs("Once upon a time", top=3)
        pairs = [pair for token in score[1:] if token for pair in token.top]
        return [logprob.hex() for _, logprob in pairs]

    expected = found("scalar")
    assert expected and all(found(isa) == expected for isa in _native.isas())


# ---- through an engine ---------------------------------------------------------------------------


def test_defaults_leave_greedy_the_argmax(engine: Engine) -> None:
    tokens = engine.generate("", temperature=0, max_tokens=32).tokens
    logits = engine.logits([1, *tokens])[:-1]
    assert list(tokens) == logits.argmax(axis=1).tolist()


def test_a_generation_hands_every_option_to_the_sampler(engine: Engine) -> None:
    """Each option alone changes a text that without it is another."""
    plain = engine.generate("Once", seed=4, max_tokens=40, **_sampling({})).tokens
    changes: list[dict[str, Any]] = [
        {"temperature": 0.01},
        {"top_k": 2},
        {"top_p": 0.2},
        {"min_p": 0.5},
        {"typical_p": 0.2},
        {"repetition_penalty": 2.0},
        {"presence_penalty": 3.0},
        {"frequency_penalty": 3.0},
        {"dry_multiplier": 5.0, "dry_allowed_length": 1},
        {"xtc_probability": 1.0},
        {"logit_bias": {plain[0]: -100}},
        {"suppress_tokens": [plain[0]]},
        {"seed": 5},
        {"choice": 1},
    ]
    for change in changes:
        options = {"seed": 4, **_sampling(change), "max_tokens": 40}
        assert engine.generate("Once", **options).tokens != plain, change


def _sampling(change: dict[str, Any]) -> dict[str, Any]:
    wide = {"temperature": 1.2, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}
    return {**wide, **change}


def test_the_argmax_can_be_banned_and_another_forced(engine: Engine) -> None:
    first = engine.generate("Once", temperature=0, max_tokens=1).tokens[0]
    banned = engine.generate("Once", temperature=0, max_tokens=20, logit_bias={first: -100})
    assert first not in banned.tokens
    forced = engine.generate("Once", temperature=0, max_tokens=3, logit_bias={"400": 100})
    assert forced.tokens == (400, 400, 400)


def test_a_penalty_breaks_a_loop(engine: Engine) -> None:
    looping = {"temperature": 0, "max_tokens": 30, "logit_bias": {400: 25.0}}
    assert len(set(engine.generate("Once", **looping).tokens)) < 8
    broken = engine.generate("Once", **looping, frequency_penalty=10.0)
    assert len(set(broken.tokens)) > 15


# ---- masks ---------------------------------------------------------------------------------------


def words_of(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    bits = np.zeros(-(-len(mask) // 32) * 32, np.bool_)
    bits[: len(mask)] = mask
    return np.packbits(bits, bitorder="little").view(np.uint32)


MASKED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {},
    {"top_k": 5},
    {"typical_p": 0.5},
    {"top_p": 0.7, "min_p": 0.1},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"repetition_penalty": 1.5, "presence_penalty": 1.0, "logit_bias": {0: 50.0, 1: -100.0}},
]


@pytest.mark.parametrize("options", MASKED, ids=str)
@pytest.mark.parametrize("count", [1, 31, 32, 33, 500, 2003])
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_a_token_that_is_masked_is_as_if_its_logit_were_minus_infinity(
    draw: Drawer, options: dict[str, Any], count: int, share: float
) -> None:
    logits = random_logits(count, seed=count)
    mask = np.random.default_rng(5).random(count) < share
    mask[count // 2] = True
    sampler, other = draw.sampler(count, **options), draw.sampler(count, **options)
    seen = np.arange(0, count, 3, dtype=np.int32)
    for each in (sampler, other):
        each.accept(seen, False)
    without = np.where(mask, logits, -np.inf).astype(np.float32)
    for position in range(10):
        token = sampler.sample(logits, position, words_of(mask))
        assert mask[token]
        assert token == other.sample(without, position)


def test_texts_of_one_call_have_masks_of_their_own(draw: Drawer) -> None:
    logits = np.stack([random_logits(70, seed=i) for i in range(3)])
    masks = [words_of(np.arange(70) % 7 == 0), None, words_of(np.arange(70) == 69)]
    samplers = [draw.sampler(70) for _ in range(3)]
    expected = [s.sample(*row) for s, *row in zip(samplers, logits, (4, 5, 6), masks, strict=True)]
    assert _native.sample(samplers, logits, [4, 5, 6], masks) == expected
    assert expected[0] % 7 == 0
    assert expected[2] == 69


def test_a_mask_that_is_too_short_or_empty_is_an_error(draw: Drawer) -> None:
    logits = random_logits(65)
    with pytest.raises(InfernoError, match="bit of the mask"):
        draw.sampler(65).sample(logits, 0, np.full(2, 2**32 - 1, np.uint32))
    with pytest.raises(InvalidOption, match="the constraint allows"):
        draw.sampler(65).sample(logits, 0, np.zeros(3, np.uint32))
    with pytest.raises(InfernoError, match="no masks, or one"):
        _native.sample([draw.sampler(65)], logits[None], [0], [None, None])
