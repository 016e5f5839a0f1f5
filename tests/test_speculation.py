"""Guesses: where they come from, how many are made, and that they never change a text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engines
from inferno import Engine, InvalidOption, Session
from inferno.options import MAX_GUESSES
from inferno.speculation import (
    FIRST_PAUSE,
    FORGOTTEN_AFTER,
    LONGEST_PAUSE,
    Drafter,
    Gate,
    NgramIndex,
    PassCosts,
    agreement,
    continuation,
)

# ---- the index -----------------------------------------------------------------------------------


def scanned(ids: Sequence[int]) -> int | None:
    """Look everywhere for where the last four to two ids were seen to end before."""
    for n in (4, 3, 2):
        for end in range(len(ids) - 1, n - 1, -1):
            if len(ids) > n and ids[end - n : end] == ids[-n:]:
                return end
    return None


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_the_index_finds_what_a_scan_finds(data: Any) -> None:
    ids: list[int] = []
    index = NgramIndex(ids)
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            ids.extend(data.draw(st.lists(st.integers(0, 2), max_size=8)))
        else:
            length = data.draw(st.integers(0, len(ids)))
            index.cut(length)
            del ids[length:]
        index.fit(max(0, len(ids) - 1))
        assert index.find(ids) == scanned(ids)


def test_the_longest_run_wins_and_then_the_newest() -> None:
    ids = [1, 2, 3, 9, 8, 3, 7, 2, 3, 6, 1, 2, 3]
    index = NgramIndex(ids)
    index.fit(len(ids) - 1)
    assert index.find(ids) == 3  # 1 2 3, though 2 3 was seen again later
    assert index.find([0, 2, 3]) == 9
    assert index.find([0, 3]) is None


def test_an_occurrence_after_a_place_is_found_from_the_newest_back() -> None:
    ids = [1, 2, 0, 1, 2, 5, 1, 2, 6]
    index = NgramIndex(ids)
    index.fit(len(ids))
    assert [index.find([1, 2], after=place) for place in (0, 2, 4, 5, 7, 8)] == [2, 5, 5, 8, 8, 8]


def test_cutting_back_finds_the_older_occurrence_again() -> None:
    ids = [4, 5, 1, 4, 5, 2, 4, 5]
    index = NgramIndex(ids)
    index.fit(7)
    assert index.find(ids) == 5
    index.cut(4)
    del ids[4:]
    ids.extend([9, 4, 5])
    index.fit(6)
    assert index.find(ids) == 2


def test_what_follows_the_end_is_what_came() -> None:
    assert continuation([1, 2, 3, 4], 1, 2) == [2, 3]
    assert continuation([1, 2, 3, 4], 2, 7) == [3, 4, 3, 4, 3, 4, 3]
    assert continuation([7], 0, 3) == [7, 7, 7]
    assert continuation([1, 2], 1, 0) == []


def test_agreement_is_counted_backwards() -> None:
    ids = [1, 2, 3, 9, 2, 3]
    assert agreement(ids, ids, 3) == 2
    assert agreement([2, 3], ids, 2) == 2
    assert agreement([0] * 100, [0] * 100, 99) == 32


# ---- the cost ------------------------------------------------------------------------------------


def test_a_row_is_assumed_to_cost_three_tenths_of_a_pass() -> None:
    table = PassCosts().table()
    assert len(table) == MAX_GUESSES + 2
    assert [table[1], table[2], table[5]] == pytest.approx([1.0, 1.3, 2.2])


def test_costs_lie_between_those_seen_and_go_on_as_they_began() -> None:
    costs = PassCosts()
    costs.observe(5, 3.0)
    assert costs.table()[5] == pytest.approx(2.2)  # of what, is not known yet
    costs.observe(1, 2.0)
    costs.observe(9, 5.0)
    table = costs.table()
    assert [table[1], table[3], table[5], table[7], table[9]] == [1.0, 1.25, 1.5, 2.0, 2.5]
    assert table[17] == pytest.approx(1 + 1.5 * 16 / 8)


def test_the_fastest_of_the_last_passes_counts() -> None:
    costs = PassCosts()
    for seconds in (1.0, 50.0, 2.0):
        costs.observe(1, seconds)
        costs.observe(2, 1.5 * seconds)
    assert costs.table()[2] == 1.5
    for _ in range(8):  # the text is longer now
        costs.observe(1, 4.0)
        costs.observe(2, 5.0)
    assert costs.table()[2] == 1.25


def test_a_pass_that_was_slow_once_is_tried_again() -> None:
    costs = PassCosts()
    for rows, seconds in ((1, 1.0), (5, 50.0), (9, 60.0)):
        costs.observe(rows, seconds)
    assert Gate(costs).guesses(8) == 0
    for _ in range(FORGOTTEN_AFTER - 3):
        costs.observe(1, 1.0)
    assert costs.table()[5] == 50.0
    for _ in range(3):
        costs.observe(1, 1.0)
    assert costs.table()[5] == pytest.approx(2.2)  # as if nothing were known
    assert Gate(costs).guesses(8) > 0
    costs.observe(5, 1.5)
    assert costs.table()[5] == pytest.approx(1.5)


def test_more_rows_are_never_cheaper() -> None:
    costs = PassCosts()
    for rows, seconds in ((1, 1.0), (2, 0.5), (4, 2.0), (8, 1.5), (500, 0.1)):
        costs.observe(rows, seconds)
    assert costs.table()[1:9] == [1.0, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0]


# ---- the gate ------------------------------------------------------------------------------------


def cost_of_steps(gate: Gate, table: Sequence[float], matched: int, steps: int) -> float:
    """Run passes each of which has a match that does not hold; return what they cost."""
    cost = 0.0
    for _ in range(steps):
        guesses = gate.guesses(matched)
        cost += table[1 + guesses]
        if guesses:
            gate.record(guesses, 0)
    return cost


def test_a_longer_match_is_followed_further() -> None:
    gate = Gate(PassCosts())
    counts = [gate.guesses(matched) for matched in (2, 4, 8, 32)]
    assert counts == sorted(set(counts))
    assert counts[0] >= 1
    assert counts[-1] > 4


def test_cheaper_rows_are_used() -> None:
    costs = PassCosts()
    costs.observe(1, 1.0)
    costs.observe(8, 1.1)
    assert Gate(costs).guesses(8) > Gate(PassCosts()).guesses(8)
    costs = PassCosts()
    costs.observe(1, 1.0)
    costs.observe(2, 2.1)  # as much as two passes
    assert Gate(costs).guesses(32) == 0


@pytest.mark.parametrize("matched", [2, 3])
def test_guesses_that_never_hold_cost_two_percent_at_most(matched: int) -> None:
    costs = PassCosts()
    assert cost_of_steps(Gate(costs), costs.table(), matched, 300) <= 1.02 * 300


def test_pauses_double_while_nothing_holds() -> None:
    gate, attempts = Gate(PassCosts()), []
    for step in range(600):
        if guesses := gate.guesses(2):
            attempts.append(step)
            gate.record(guesses, 0)
    pauses = [b - a for a, b in itertools.pairwise(attempts)]
    first = next(i for i, pause in enumerate(pauses) if pause > 1)
    assert first <= 10
    expected = [FIRST_PAUSE, 10, 20, 40, LONGEST_PAUSE, LONGEST_PAUSE]
    # The pass that finds nothing worth an attempt begins the pause, but after a trial.
    assert [pause - (i == 0) for i, pause in enumerate(pauses[first : first + 6])] == expected


def test_one_attempt_that_holds_ends_the_doubts() -> None:
    gate = Gate(PassCosts())
    cost_of_steps(gate, PassCosts().table(), 2, 100)
    while not (guesses := gate.guesses(2)):
        pass
    gate.record(guesses, guesses)
    assert gate.guesses(2) >= 1
    assert gate.guesses(16) > 4


def test_a_long_match_is_tried_even_in_a_pause() -> None:
    gate = Gate(PassCosts())
    cost_of_steps(gate, PassCosts().table(), 2, 5)
    assert gate.guesses(2) == 0
    assert gate.guesses(32) >= 1


# ---- the drafter ---------------------------------------------------------------------------------


def drafted(drafter: Drafter, ids: list[int], limit: int = 100) -> list[int]:
    return drafter.draft(ids, NgramIndex(ids), limit)


def test_nothing_is_guessed_where_nothing_repeats() -> None:
    drafter = Drafter(PassCosts())
    assert drafted(drafter, list(range(100))) == []
    assert drafted(drafter, []) == []
    assert drafted(drafter, [1]) == []
    assert drafted(drafter, [1, 2, 3, 1]) == []


def test_a_fixed_number_of_guesses_is_made_whatever_comes_of_it() -> None:
    drafter = Drafter(PassCosts(), count=3)
    for _ in range(50):
        assert drafted(drafter, [1, 2, 5, 6, 7, 1, 2]) == [5, 6, 7]
        drafter.record(3, 0)
    assert drafted(drafter, [1, 2, 5, 6, 7, 1, 2], limit=2) == [5, 6]
    assert drafted(drafter, [1, 2, 5, 6, 7, 1, 2], limit=0) == []
    assert drafted(drafter, [1, 2, 5, 6, 7, 1, 2], limit=-1) == []


def test_a_prediction_is_followed_from_its_start() -> None:
    drafter = Drafter(PassCosts(), [5, 6, 7, 8], count=2)
    assert drafted(drafter, [1]) == [5, 6]
    for id in (5, 6, 7):
        drafter.take(id)
    assert drafted(drafter, [1, 5, 6, 7]) == [8]
    drafter.take(8)
    assert drafted(drafter, [1, 5, 6, 7, 8]) == []
    drafter.take(9)
    assert drafted(drafter, [1, 5, 6, 7, 8, 9]) == []


def test_a_prediction_that_was_left_is_found_again_after_that_place() -> None:
    prediction = [5, 6, 20, 5, 6, 21, 5, 6, 22]
    drafter = Drafter(PassCosts(), prediction, count=1)
    text = [1]
    for id in (5, 6, 99, 5, 6):
        drafter.take(id)
        text.append(id)
        drafted(drafter, text)
    assert drafted(drafter, text) == [21]


def test_where_the_prediction_says_nothing_the_text_does() -> None:
    drafter = Drafter(PassCosts(), [50, 51], count=1)
    text = [1, 2, 3, 1, 2]
    drafter.take(2)
    assert drafted(drafter, text) == [3]


# ---- through an engine ---------------------------------------------------------------------------

# Prompts that the model goes on to repeat, and one that it does not.
CAT = "The cat sat on the mat. The cat sat on the mat. The cat sat on the"
PROMPTS = (CAT, "Lily had a red ball. Lily had a red ball. Lily", "Once upon a time")
OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.7, "seed": 1},
    {"temperature": 1.2, "seed": 2, "top_k": 0, "top_p": 1, "min_p": 0, "choice": 3},
    {"temperature": 0, "repetition_penalty": 1.1, "logprobs": 4},
    {"temperature": 0.5, "seed": 3, "frequency_penalty": 0.3, "repeat_last_n": 9, "logprobs": 1},
    {"temperature": 0.4, "seed": 4, "dry_multiplier": 0.5, "xtc_probability": 0.2},
    {"temperature": 0, "stop": ("mat", "ball")},
    {"temperature": 0.3, "seed": 5, "ignore_eos": True, "logit_bias": {400: 3.0}},
]
SPECULATIONS: tuple[str | int, ...] = ("auto", 1, 4, 16)


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.fixture(scope="module")
def small(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf, context=64)


def fed(engine: Engine, prompt: str | list[int] = CAT) -> Session:
    session = engine.new_session()
    session.feed(prompt)
    return session


def everything(session: Session, **options: Any) -> tuple[Any, ...]:
    """Generate, and return all that anybody can see of it, and of the session after it."""
    g = session.generate(**options)
    pieces = list(g)
    return pieces, g.tokens, g.finish_reason, g.logprobs, session.tokens, session.logits().tobytes()


@pytest.mark.parametrize("options", OPTIONS, ids=[str(o) for o in OPTIONS])
def test_speculation_changes_nothing_that_can_be_seen(
    engine: Engine, options: dict[str, Any]
) -> None:
    accepted = 0
    for prompt in PROMPTS:
        plain = everything(fed(engine, prompt), speculation="off", max_tokens=60, **options)
        for speculation in SPECULATIONS:
            session = fed(engine, prompt)
            generation = session.fork().generate(speculation=speculation, max_tokens=60, **options)
            found = everything(session, speculation=speculation, max_tokens=60, **options)
            assert found == plain, (prompt, speculation)
            stats = generation.stats
            assert 0 <= stats.accepted <= stats.drafted
            assert stats.accepted <= len(generation.tokens)
            accepted += stats.accepted
    assert accepted > 0 or "stop" in options


@pytest.mark.parametrize("speculation", SPECULATIONS)
def test_a_limit_within_an_accepted_run_holds(engine: Engine, speculation: str | int) -> None:
    whole = fed(engine).generate(temperature=0, max_tokens=60, speculation="off").tokens
    for limit in (0, 1, 2, 3, 5, 8, 13, 21, 34):
        session = fed(engine)
        before = len(session)
        generation = session.generate(temperature=0, max_tokens=limit, speculation=speculation)
        assert (generation.tokens, generation.finish_reason) == (whole[:limit], "length")
        assert len(session) == before + limit
        rest = session.generate(temperature=0, max_tokens=60 - limit, speculation=speculation)
        assert generation.tokens + rest.tokens == whole


@pytest.mark.parametrize("speculation", SPECULATIONS)
def test_a_full_context_ends_as_it_does_without(small: Engine, speculation: str | int) -> None:
    for length in (20, 50, 61, 62, 63, 64):
        ids = ([1] + [410, 411, 412] * 30)[:length]
        plain = everything_full(small, ids, "off")
        assert everything_full(small, ids, speculation) == plain


def everything_full(engine: Engine, ids: list[int], speculation: str | int) -> tuple[Any, ...]:
    session = fed(engine, ids)
    generation = session.generate(temperature=0, speculation=speculation, ignore_eos=True)
    return generation.tokens, generation.finish_reason, session.tokens, session.logits().tobytes()


def test_each_place_to_stop_reading_leaves_the_session_as_it_was_read(engine: Engine) -> None:
    """In the middle of an accepted run: cancelled, left alone, forked, and gone on with."""
    whole = fed(engine).generate(temperature=0, max_tokens=40, speculation="off").tokens
    for count in range(1, 20):
        session = fed(engine)
        start = len(session)
        generation = session.generate(temperature=0, max_tokens=40, speculation=8)
        pieces = iter(generation)
        read = [next(pieces) for _ in range(count)]
        tokens = session.tokens[start:]
        assert tokens == whole[: len(tokens)]
        assert engine.tokenizer.decode(tokens, previous=session.tokens[start - 1]) == "".join(read)
        truth = engine.logits(session.tokens)[-1].tobytes()
        fork = session.fork()
        assert fork.logits().tobytes() == truth
        assert session.logits().tobytes() == truth
        rest = fork.generate(temperature=0, max_tokens=40 - len(tokens), speculation="off").tokens
        assert tokens + rest == whole
        other = session.fork()
        other.feed([7, 8])
        assert other.logits().tobytes() == engine.logits([*session.tokens, 7, 8])[-1].tobytes()
        if count % 3 == 0:
            generation.cancel()
            assert (generation.finish_reason, generation.tokens) == ("cancelled", tokens)
        elif count % 3 == 1:
            assert generation.tokens == whole
            continue
        del generation, pieces
        assert session.tokens[start:] == tokens
        if count % 2:
            session.truncate(len(session) - 1)
            session.feed([session.tokens[-1] + 1])
            assert session.logits().tobytes() == engine.logits(session.tokens)[-1].tobytes()
        else:
            rest = session.generate(temperature=0, max_tokens=40 - len(tokens)).tokens
            assert tokens + rest == whole


def test_a_session_changed_in_mid_run_is_an_error_as_ever(engine: Engine) -> None:
    for change in (lambda s: s.feed([5]), lambda s: s.truncate(len(s) - 1), lambda s: s.feed([])):
        session = fed(engine)
        generation = session.generate(temperature=0, max_tokens=40, speculation=8)
        pieces = iter(generation)
        for _ in range(6):
            next(pieces)
        change(session)
        with pytest.raises(InvalidOption, match="was changed"):
            list(pieces)
        assert session.logits().tobytes() == engine.logits(session.tokens)[-1].tobytes()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_session_goes_on_after_a_verification_that_failed(
    engine: Engine, error: type[BaseException]
) -> None:
    whole = fed(engine).generate(temperature=0, max_tokens=40, speculation="off").tokens
    for failing in range(1, 6):
        session = fed(engine)
        start = len(session)
        generation = session.generate(temperature=0, max_tokens=40, speculation=4)
        pieces = iter(generation)
        next(pieces)

        def fail(n: int, failing: int = failing) -> None:
            if n == failing:
                raise error

        with engines.watched(engine, fail), pytest.raises(error):
            list(pieces)
        tokens = session.tokens[start:]
        assert tokens == whole[: len(tokens)]
        rest = session.generate(temperature=0, max_tokens=40 - len(tokens), speculation=4).tokens
        assert tokens + rest == whole


def test_a_right_prediction_takes_few_passes_and_a_wrong_one_changes_nothing(
    engine: Engine,
) -> None:
    prompt, options = "Once upon a time", {"temperature": 0, "max_tokens": 40}
    whole = engine.generate(prompt, speculation="off", **options)
    for prediction in (whole.tokens, whole.text, [*whole.tokens[:20], 5, *whole.tokens[20:]]):
        generation = engine.generate(prompt, prediction=prediction, speculation=10, **options)
        passes = generation.stats
        assert (generation.tokens, generation.text) == (whole.tokens, whole.text)
        assert passes.accepted >= 32
        auto = engine.generate(prompt, prediction=prediction, **options)
        assert auto.tokens == whole.tokens
        assert auto.stats.accepted >= 25
    for wrong in ("", (), "Something else entirely.", engines.random_ids(100, 512), [0] * 50):
        for speculation in (10, "auto"):
            generation = engine.generate(
                prompt, prediction=wrong, speculation=speculation, **options
            )
            assert generation.tokens == whole.tokens


def test_fewer_passes_are_run_where_the_text_repeats(engine: Engine) -> None:
    def passes(speculation: str) -> int:
        session = fed(engine, [1, *[410, 411, 412, 413] * 6])
        forced = {"logit_bias": dict.fromkeys((410, 411, 412, 413), 100), "temperature": 0}
        generation = session.generate(max_tokens=48, speculation=speculation, **forced)
        counted = 0

        def count(n: int) -> None:
            nonlocal counted
            counted = n + 1

        pieces = iter(generation)
        next(pieces)  # samplers cannot be made while it is watched
        with engines.watched(engine, count):
            list(pieces)
        stats = generation.stats
        assert counted == 47 - stats.accepted
        return counted

    assert passes("off") == 47
    assert passes("auto") < 47 / 2


def test_drafted_and_accepted_are_what_was_verified_and_kept(engine: Engine) -> None:
    """Count both from outside: rows of the passes, and passes that were saved."""
    session = fed(engine)
    generation = session.generate(temperature=0, max_tokens=50, speculation=5)
    pieces = iter(generation)
    next(pieces)
    rows = 0

    class Counting(engines.WatchedExecutor):
        def forward(self, batch: Any) -> Any:
            nonlocal rows
            rows += sum(len(ids) for _, ids, _ in batch)
            return super().forward(batch)

    watch = Counting(engine, lambda n: None)
    executor, engine._executor = engine._executor, watch  # type: ignore[assignment]
    try:
        list(pieces)
    finally:
        engine._executor = executor
    stats = generation.stats
    assert rows - watch.passes == stats.drafted > 0
    assert len(generation.tokens) - 1 - watch.passes == stats.accepted > 0


def test_speculation_off_drafts_nothing(engine: Engine) -> None:
    stats = fed(engine).generate(temperature=0, max_tokens=50, speculation="off").stats
    assert (stats.drafted, stats.accepted) == (0, 0)


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_no_prediction_changes_a_sampled_text(engine: Engine, data: Any) -> None:
    options = {"temperature": 1.0, "seed": 8, "max_tokens": 12, "repetition_penalty": 1.2}
    plain = engine.generate("Once", speculation="off", **options).tokens
    right = st.sampled_from(plain)
    prediction = data.draw(st.lists(right | st.integers(0, 511), max_size=20))
    speculation = data.draw(st.sampled_from(SPECULATIONS))
    found = engine.generate("Once", prediction=prediction, speculation=speculation, **options)
    assert found.tokens == plain


def test_a_prediction_outside_the_vocabulary_is_refused_at_once(engine: Engine) -> None:
    with pytest.raises(InvalidOption, match="`prediction`: token id 512 is not in the vocabulary"):
        engine.generate("Once", prediction=[512])
    with pytest.raises(InvalidOption, match="`suppress_tokens`: token id 512"):
        engine.generate("Once", suppress_tokens=[512])
