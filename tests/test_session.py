"""Sessions: growing, cutting back, forking, and staying sound whatever goes wrong."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engines
from inferno import ContextFull, Engine, InfernoError, InvalidOption, InvalidText, Session

IDS = engines.random_ids(150, 512)
PAGE = 64


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf, context=200)


@pytest.fixture(scope="module")
def truth(engine: Engine) -> engines.Floats:
    """The logits after each of IDS."""
    return engine.logits(IDS)


def fed(engine: Engine, ids: Any) -> Session:
    session = engine.new_session()
    session.feed(ids)
    return session


# ---- feeding -------------------------------------------------------------------------------------


def test_a_new_session_is_empty_and_true(engine: Engine) -> None:
    session = engine.new_session()
    assert (session.tokens, len(session), bool(session)) == ((), 0, True)


def test_feeding_appends_and_says_how_many_were_processed(engine: Engine) -> None:
    session = engine.new_session()
    assert session.feed(IDS[:5]) == 5
    assert session.feed(np.array(IDS[5:8])) == 3
    assert session.feed(iter(IDS[8:10])) == 2
    assert session.tokens == tuple(IDS[:10])
    assert session.feed([]) == 0


def test_the_first_text_starts_with_bos_and_later_text_does_not(engine: Engine) -> None:
    session = engine.new_session()
    session.feed("Once upon")
    session.feed(" a time")
    bos = engine.tokenizer.bos_id
    assert session.tokens[0] == bos
    assert session.tokens.count(bos) == 1


def test_text_fed_in_pieces_reads_as_one(engine: Engine) -> None:
    """A vocabulary that invents a space before a text invents none between two pieces."""
    session = engine.new_session()
    for piece in ("Once upon", " a time, there was a li", "ttle girl"):
        session.feed(piece)
    assert engine.tokenizer.decode(session.tokens) == "Once upon a time, there was a little girl"


def test_a_text_that_brings_its_bos_gets_no_second(engine: Engine) -> None:
    assert fed(engine, "<s>Once").tokens == fed(engine, "Once").tokens


def test_ids_get_no_bos(engine: Engine) -> None:
    assert fed(engine, [403, 407]).tokens == (403, 407)


def test_an_empty_text_is_bos_or_nothing(engine: Engine, llama_gguf: Path) -> None:
    assert fed(engine, "").tokens == (engine.tokenizer.bos_id,)
    without_bos = engines.load(llama_gguf)
    assert fed(without_bos, "").tokens == ()


def test_logits_are_those_after_the_last_token(engine: Engine, truth: engines.Floats) -> None:
    session = engine.new_session()
    for length in (1, 2, PAGE - 1, PAGE, PAGE + 1, 149, 150):
        session.feed(IDS[len(session) : length])
        assert session.logits().tobytes() == truth[length - 1].tobytes()


def test_logits_are_a_copy(engine: Engine, truth: engines.Floats) -> None:
    session = fed(engine, IDS)
    session.logits()[:] = 0
    assert session.logits().tobytes() == truth[-1].tobytes()
    assert session.fork().logits().tobytes() == truth[-1].tobytes()


def test_an_empty_session_has_no_logits(engine: Engine) -> None:
    with pytest.raises(InvalidOption, match="session is empty"):
        engine.new_session().logits()


HOSTILE = [
    ([512], InvalidOption),
    ([-1], InvalidOption),
    ([1, 2, 10**30], InvalidOption),
    ([1.0], InvalidOption),
    ([True], InvalidOption),
    ([None], InvalidOption),
    (["1"], InvalidOption),
    ([[1]], InvalidOption),
    (5, InvalidOption),
    (None, InvalidOption),
    (b"\xe6\xad", InvalidText),
    (bytearray(b"\xff"), InvalidText),
    ("half \ud83e a pair", InvalidText),
    (IDS * 2, ContextFull),
]


@pytest.mark.parametrize(("wrong", "error"), HOSTILE, ids=[repr(w)[:20] for w, _ in HOSTILE])
def test_what_cannot_be_fed_changes_nothing(
    engine: Engine, truth: engines.Floats, wrong: Any, error: type[InfernoError]
) -> None:
    session = fed(engine, IDS[:20])
    with pytest.raises(error):
        session.feed(wrong)
    assert session.tokens == tuple(IDS[:20])
    assert session.logits().tobytes() == truth[19].tobytes()
    session.feed(IDS[20:])
    assert session.logits().tobytes() == truth[-1].tobytes()


def test_bytes_are_text_whatever_their_type(engine: Engine) -> None:
    assert fed(engine, bytearray(b"Once")).tokens == fed(engine, b"Once").tokens
    assert fed(engine, b"Once").tokens == fed(engine, "Once").tokens


def test_a_context_can_be_filled_to_the_last_position(engine: Engine) -> None:
    ids = engines.random_ids(200, 512)
    session = fed(engine, ids)
    assert len(session) == engine.context == 200
    with pytest.raises(ContextFull, match="200 of 200 tokens used, 1 more wanted, 1 too many"):
        session.feed([1])
    assert session.logits().tobytes() == engine.logits(ids)[-1].tobytes()
    session.truncate(199)
    assert session.feed([1]) == 1


def test_a_full_context_says_which_larger_one_would_do(engine: Engine) -> None:
    with pytest.raises(ContextFull) as caught:
        engine.new_session().feed([1] * 201)
    assert caught.value.hint is not None
    assert "context=400" in caught.value.hint


def test_a_full_context_that_cannot_grow_suggests_no_larger_one(stories_gguf: Path) -> None:
    largest = engines.load(stories_gguf)
    with pytest.raises(ContextFull) as caught:
        largest.new_session().feed([1] * (largest.context + 1))
    assert caught.value.hint is not None
    assert "context=" not in caught.value.hint


# ---- cutting back --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 149, 150])
def test_a_session_cut_back_is_as_if_the_rest_had_never_been(
    engine: Engine, truth: engines.Floats, length: int
) -> None:
    session = fed(engine, IDS)
    session.truncate(length)
    assert session.tokens == tuple(IDS[:length])
    if length:
        assert session.logits().tobytes() == truth[length - 1].tobytes()
    session.feed(IDS[length:])
    if length < len(IDS):
        assert session.logits().tobytes() == truth[-1].tobytes()


def test_truncating_a_draft_keeps_earlier_turns(engine: Engine) -> None:
    session = fed(engine, "Once upon a time, there was a cat. ")
    turns = len(session)
    expected = session.fork().generate(temperature=0, max_tokens=20).text
    for draft in ("The cat", "The cat was big", "The dog said"):
        session.feed(draft)
        session.truncate(turns)
    assert session.generate(temperature=0, max_tokens=20).text == expected


@pytest.mark.parametrize("length", [-1, 21, 10**30, 1.0, True, "5", None])
def test_a_length_that_is_none_is_refused_and_nothing_is_cut(engine: Engine, length: Any) -> None:
    session = fed(engine, IDS[:20])
    with pytest.raises(InvalidOption, match="`length`"):
        session.truncate(length)
    assert session.tokens == tuple(IDS[:20])


def test_cutting_nothing_off_processes_nothing(engine: Engine) -> None:
    session = fed(engine, IDS)
    session.truncate(len(IDS))
    with engines.watched(engine, lambda n: None) as watch:
        session.logits()
    assert watch.passes == 0


# ---- forking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100])
def test_parent_and_fork_do_not_see_each_other(
    engine: Engine, truth: engines.Floats, length: int
) -> None:
    parent = fed(engine, IDS[:length])
    fork = parent.fork()
    other = engines.random_ids(40, 512, seed=5)
    for id in other:  # the parent writes first, and beyond the fork's page
        parent.feed([id])
    fork.feed(IDS[length:])
    assert fork.logits().tobytes() == truth[-1].tobytes()
    assert parent.tokens == (*IDS[:length], *other)
    assert parent.logits().tobytes() == engine.logits([*IDS[:length], *other])[-1].tobytes()


def test_a_fork_of_a_fork_outlives_both(engine: Engine, truth: engines.Floats) -> None:
    parent = fed(engine, IDS[:70])
    child = parent.fork()
    child.feed(IDS[70:80])
    grandchild = child.fork()
    del parent, child
    gc.collect()
    fed(engine, engines.random_ids(150, 512, seed=8))  # takes the pages they gave back
    grandchild.feed(IDS[80:])
    assert grandchild.logits().tobytes() == truth[-1].tobytes()


def test_cutting_a_fork_leaves_its_parent(engine: Engine, truth: engines.Floats) -> None:
    parent = fed(engine, IDS)
    fork = parent.fork()
    fork.truncate(10)
    fork.feed(engines.random_ids(150, 512, seed=6))
    parent.truncate(140)
    parent.feed(IDS[140:])
    assert parent.logits().tobytes() == truth[-1].tobytes()


def test_a_fork_has_the_logits_already(engine: Engine, truth: engines.Floats) -> None:
    session = fed(engine, IDS)
    with engines.watched(engine, lambda n: None) as watch:
        assert session.fork().logits().tobytes() == truth[-1].tobytes()
    assert watch.passes == 0


def test_forks_share_pages_and_dead_sessions_give_theirs_back(stories_gguf: Path) -> None:
    engine = engines.load(stories_gguf)
    pages = engine._loaded.pages
    assert pages.allocated_bytes == 0
    parent = fed(engine, IDS)
    allocated = pages.allocated_bytes
    assert allocated >= 150 * engine.memory.kv_cache_per_token
    forks = [parent.fork() for _ in range(2 * allocated // pages.bytes_per_position // 150)]
    assert pages.allocated_bytes == allocated
    assert {fork.logits().tobytes() for fork in forks} == {parent.logits().tobytes()}
    for _ in range(2 * allocated // pages.bytes_per_position // 150):
        fed(engine, IDS)
    assert pages.allocated_bytes == allocated


# ---- when a forward pass fails -------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("inferno.session.PREFILL_ROWS", 16)
    yield


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, KeyboardInterrupt])
@pytest.mark.usefixtures("small_chunks")
def test_a_session_goes_on_after_a_prefill_that_failed(
    engine: Engine, truth: engines.Floats, error: type[BaseException]
) -> None:
    def fail(n: int) -> None:
        if n == 3:
            raise error

    session = engine.new_session()
    with engines.watched(engine, fail), pytest.raises(error):
        session.feed(IDS[:100])
    session.feed(IDS[100:])
    assert session.tokens == tuple(IDS)
    assert session.logits().tobytes() == truth[-1].tobytes()


@pytest.mark.usefixtures("small_chunks")
def test_a_session_can_be_cut_and_forked_after_a_prefill_that_failed(
    engine: Engine, truth: engines.Floats
) -> None:
    def fail(n: int) -> None:
        if n == 3:
            raise MemoryError

    session = engine.new_session()
    with engines.watched(engine, fail), pytest.raises(MemoryError):
        session.feed(IDS)
    fork = session.fork()
    assert fork.logits().tobytes() == truth[-1].tobytes()
    session.truncate(80)  # more than was processed
    assert session.logits().tobytes() == truth[79].tobytes()


@pytest.mark.usefixtures("small_chunks")
def test_a_prefill_is_cut_into_chunks_and_only_the_last_makes_logits(
    engine: Engine, truth: engines.Floats
) -> None:
    session = engine.new_session()
    with engines.watched(engine, lambda n: None) as watch:
        session.feed(IDS)
    assert watch.passes == 10
    assert session.logits().tobytes() == truth[-1].tobytes()
