"""The tree of pages: what is found, what is given up, and that nobody can tell from the bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import engines
from inferno import Engine, _native
from inferno.prefix_cache import MAX_LOGITS, PrefixCache

PAGE = 64
IDS = engines.random_ids(150, 512)
GREEDY = {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True, "logprobs": 2}


@pytest.fixture(scope="module")
def cold(stories_gguf: Path) -> Engine:
    """An engine that keeps nothing."""
    return engines.load(stories_gguf)


@pytest.fixture(scope="module")
def loaded(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.fixture
def engine(stories_gguf: Path) -> Engine:
    """An engine that has seen nothing yet, with room for all that a test does."""
    engine = engines.load(stories_gguf)
    engine.prefix_cache.capacity = 1 << 30
    return engine


def of_pages(engine: Engine, pages: int) -> int:
    return pages * engine._loaded.pages.page_bytes


def processed_by(engine: Engine, ids: list[int]) -> int:
    return engine.new_session().feed(ids)


# ---- what is found -------------------------------------------------------------------------------


def filled(pool: _native.PagePool, executor: _native.Executor, ids: list[int]) -> _native.KvCache:
    cache = _native.KvCache(pool)
    executor.forward([(cache, np.array(ids, np.int32), "none")])
    return cache


def test_the_longest_common_prefix_is_found_whatever_else_is_there(loaded: Engine) -> None:
    """Against a list of all texts, compared one by one; few ids, so that they share a lot."""
    pool, executor = loaded._loaded.pages, loaded._executor
    tree = PrefixCache(pool, 1 << 30)
    choices, texts = random.Random(3), []
    for _ in range(60):
        text = [1] * choices.choice((0, 40, PAGE, 2 * PAGE)) + choices.choices((1, 2), k=9)
        text += [3] * choices.choice((0, 1, PAGE))
        pages, length = tree.find(text)
        common = [
            next((i for i, (a, b) in enumerate(zip(text, t, strict=False)) if a != b), None)
            or (0 if t[0] != text[0] else min(len(t), len(text)))
            for t in texts
        ]
        assert length == max(common, default=0)
        assert len(pages) == -(-length // PAGE)
        tree.keep(text, filled(pool, executor, text))
        assert tree.find(text)[1] == len(text)
        texts.append(text)


def test_what_a_cache_has_not_processed_is_not_kept(loaded: Engine) -> None:
    tree = PrefixCache(loaded._loaded.pages, 1 << 30)
    tree.keep(IDS, filled(loaded._loaded.pages, loaded._executor, IDS[:70]))
    assert tree.find(IDS)[1] == 70


def test_texts_that_share_a_page_share_its_memory(loaded: Engine) -> None:
    pool, executor = loaded._loaded.pages, loaded._executor
    tree = PrefixCache(pool, 1 << 30)
    before = pool.pages_in_use
    for last in range(5):
        tree.keep([*IDS[:130], last], filled(pool, executor, [*IDS[:130], last]))
    assert tree.num_pages == pool.pages_in_use - before == 2 + 5


def test_a_page_that_grows_takes_the_place_of_what_it_was(loaded: Engine) -> None:
    pool, executor = loaded._loaded.pages, loaded._executor
    tree = PrefixCache(pool, 1 << 30)
    for length in (10, 11, 63, 64, 65, 20):
        tree.keep(IDS, filled(pool, executor, IDS[:length]))
    assert tree.num_pages == 2
    assert tree.find(IDS)[1] == 65


# ---- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 128, 129, 150])
def test_a_second_session_processes_only_the_last_token(engine: Engine, length: int) -> None:
    assert processed_by(engine, IDS[:length]) == length
    again = engine.new_session()
    assert again.feed(IDS[:length]) == 1
    assert again.logits().tobytes() == engine.logits(IDS[:length])[-1].tobytes()


@pytest.mark.parametrize("common", [1, 63, 64, 65, 100, 128, 149])
def test_a_prefix_is_reused_up_to_the_token_and_gives_the_same_bits(
    engine: Engine, common: int
) -> None:
    other = engines.random_ids(150, 512, seed=5)
    other[common] = (IDS[common] + 1) % 512
    assert processed_by(engine, IDS) == 150
    session = engine.new_session()
    ids = IDS[:common] + other[common:]
    assert session.feed(ids) == 150 - common
    assert session.logits().tobytes() == engine.logits(ids)[-1].tobytes()
    # The one that came first does not notice.
    first = engine.new_session()
    assert first.feed(IDS) == 1
    assert first.logits().tobytes() == engine.logits(IDS)[-1].tobytes()


def test_what_differs_in_the_first_token_shares_nothing(engine: Engine) -> None:
    """Keys and values hold the whole text before them: an equal rest is another text."""
    processed_by(engine, IDS)
    assert processed_by(engine, [(IDS[0] + 1) % 512, *IDS[1:]]) == 150


def test_a_session_that_writes_into_a_shared_page_changes_no_other(
    engine: Engine, cold: Engine
) -> None:
    prompt = IDS[:70]
    hot = {**GREEDY, "temperature": 1.5, "seed": 7}
    generations = [engine.generate(prompt, choice=n, **hot) for n in range(4)]
    readers = [iter(generation) for generation in generations]
    for _ in range(3):  # in turns, each writing into the page that all began with
        for reader in readers:
            next(reader, None)
    for n, generation in enumerate(generations):
        alone = cold.generate(prompt, choice=n, **hot)
        assert (generation.tokens, generation.logprobs) == (alone.tokens, alone.logprobs)
    assert len({generation.tokens for generation in generations}) > 1


def test_a_reply_is_kept_with_its_prompt(engine: Engine, cold: Engine) -> None:
    first = engine.generate(IDS[:70], **GREEDY)
    assert (first.stats.prompt_tokens, first.stats.cached_tokens) == (70, 0)
    ids = [*IDS[:70], *first.tokens, 5, 6]
    second = engine.generate(ids, **GREEDY)
    # The last token of the reply was drawn, not processed.
    assert (second.stats.prompt_tokens, second.stats.cached_tokens) == (92, 89)
    assert second.tokens == cold.generate(ids, **GREEDY).tokens


def test_a_second_conversation_finds_the_system_prompt(engine: Engine, cold: Engine) -> None:
    system = {"role": "system", "content": "You tell short stories to a child, and no others. " * 4}
    texts = ["Of a cat", "Of a dog"]
    for count, text in enumerate(texts):
        messages = [system, {"role": "user", "content": text}]
        reply, alone = engine.chat(messages, **GREEDY), cold.chat(messages, **GREEDY)
        shared = len(engine.template.encode(engine.tokenizer, [system], False))
        assert reply.text == alone.text
        assert reply.logprobs == alone.logprobs
        assert alone.stats.cached_tokens == 0
        assert (reply.stats.cached_tokens >= shared - 2) == (count > 0)


def test_a_prefill_that_was_cancelled_goes_on_where_it_stopped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.session.PREFILL_ROWS", 16)
    generation = engine.generate(IDS, **GREEDY)

    def cancel(n: int) -> None:
        if n == 4:
            generation.cancel()

    with engines.watched(engine, cancel):
        assert generation.finish_reason == "cancelled"
    assert generation.stats.cached_tokens == 0
    assert engine.generate(IDS, **GREEDY).stats.cached_tokens == 80


def test_a_prefill_that_failed_keeps_what_it_did(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.session.PREFILL_ROWS", 16)

    def fail(n: int) -> None:
        if n == 4:
            raise MemoryError

    with engines.watched(engine, fail), pytest.raises(MemoryError):
        processed_by(engine, IDS)
    assert processed_by(engine, IDS) == 150 - 64


def test_forks_and_edits_find_what_they_share(engine: Engine) -> None:
    session = engine.new_session()
    session.feed(IDS)
    session.truncate(100)
    session.feed([1, 2, 3])
    assert session.logits().tobytes() == engine.logits([*IDS[:100], 1, 2, 3])[-1].tobytes()
    session.truncate(50)
    assert session.feed(IDS[50:]) == 1  # all of it was there before
    fork = session.fork()
    fork.truncate(10)
    assert fork.feed([*IDS[10:100], 1, 2, 3]) == 1
    assert session.logits().tobytes() == engine.logits(IDS)[-1].tobytes()


def test_guesses_that_did_not_come_are_not_kept(engine: Engine, cold: Engine) -> None:
    prompt = IDS[:20]
    tokens = cold.generate(prompt, **GREEDY).tokens
    guess = [*tokens[:8], (tokens[8] + 1) % 512, *tokens[9:]]
    generation = engine.generate(prompt, prediction=guess, **{**GREEDY, "speculation": 8})
    assert generation.stats.drafted > generation.stats.accepted > 0
    assert generation.tokens == tokens
    for ids in ([*prompt, *guess], [*prompt, *tokens]):
        common = engine.prefix_cache.find(ids)[1]
        assert common == 20 + (8 if ids[20:] == guess else 19)
        session = engine.new_session()
        session.feed(ids)
        assert session.logits().tobytes() == engine.logits(ids)[-1].tobytes()


# ---- memory --------------------------------------------------------------------------------------


def test_pages_stay_within_the_capacity_and_the_least_recently_used_go(engine: Engine) -> None:
    pool = engine._loaded.pages
    engine.prefix_cache.capacity = of_pages(engine, 10)
    texts = [engines.random_ids(130, 512, seed=n) for n in range(6)]  # three pages each
    for text in texts[:3]:
        processed_by(engine, text)
    assert processed_by(engine, texts[0]) == 1  # and so it is the last that goes
    for text in texts[3:5]:
        processed_by(engine, text)
        assert pool.pages_in_use <= 10
    assert engine.prefix_cache.find(texts[0])[1] == 130
    assert engine.prefix_cache.find(texts[1])[1] < 130
    assert engine.prefix_cache.find(texts[4])[1] == 130


def test_what_a_session_holds_is_not_given_up(engine: Engine) -> None:
    engine.prefix_cache.capacity = of_pages(engine, 4)
    held = engine.new_session()
    held.feed(IDS)
    for seed in range(3):
        processed_by(engine, engines.random_ids(130, 512, seed=seed))
    assert processed_by(engine, IDS) == 1
    assert held.logits().tobytes() == engine.logits(IDS)[-1].tobytes()


def test_sessions_may_exceed_a_capacity_that_then_keeps_nothing_else(engine: Engine) -> None:
    engine.prefix_cache.capacity = of_pages(engine, 2)
    sessions = []
    for seed in range(4):
        session = engine.new_session()
        session.feed(engines.random_ids(100, 512, seed=seed))
        sessions.append(session)
    for seed, session in enumerate(sessions):
        ids = engines.random_ids(100, 512, seed=seed)
        assert session.logits().tobytes() == engine.logits(ids)[-1].tobytes()
    sessions.clear()
    del session
    engine.prefix_cache.make_room(0)
    assert engine._loaded.pages.pages_in_use <= 2


def test_a_capacity_of_nothing_keeps_nothing(engine: Engine) -> None:
    processed_by(engine, IDS)
    engine.prefix_cache.capacity = 0
    assert engine.prefix_cache.num_pages == engine._loaded.pages.pages_in_use == 0
    assert processed_by(engine, IDS) == 150
    assert processed_by(engine, IDS) == 150


def test_any_capacity_and_order_gives_the_same_bits(engine: Engine, cold: Engine) -> None:
    """Forty texts over two ids, so that they begin alike; pages come and go all the time."""
    choices = random.Random(1)
    for pages in (1, 3, 7):
        engine.prefix_cache.capacity = of_pages(engine, pages)
        for _ in range(13):
            ids = [1] * choices.choice((1, 60, 64, 130)) + choices.choices((1, 2), k=40)
            session = engine.new_session()
            session.feed(ids)
            assert session.logits().tobytes() == cold.logits(ids)[-1].tobytes()


# ---- the border ----------------------------------------------------------------------------------


def test_a_cache_adopts_pages_of_its_own_pool_alone(loaded: Engine, cold: Engine) -> None:
    ours = filled(loaded._loaded.pages, loaded._executor, IDS[:70])
    page = ours.page(0)
    other = _native.KvCache(cold._loaded.pages)
    with pytest.raises(RuntimeError, match="pages of one pool"):
        other.adopt([page], 64)
    with pytest.raises(RuntimeError, match="as many pages"):
        ours.adopt([page], 65)
    with pytest.raises(RuntimeError, match="has the page"):
        ours.page(2)
    with pytest.raises(RuntimeError, match="has the page"):
        ours.page(-1)
    assert len(ours) == 70


def test_a_cache_may_adopt_its_own_pages(loaded: Engine) -> None:
    cache = filled(loaded._loaded.pages, loaded._executor, IDS[:70])
    cache.adopt([cache.page(0), cache.page(1)], 66)
    rest = np.array(IDS[66:], np.int32)
    logits = loaded._executor.forward([(cache, rest, "last")])[0]
    assert logits.tobytes() == loaded.logits(IDS)[-1].tobytes()


def test_a_page_outlives_the_cache_that_filled_it(loaded: Engine) -> None:
    cache = filled(loaded._loaded.pages, loaded._executor, IDS[:64])
    page = cache.page(0)
    assert page.is_shared
    del cache
    assert not page.is_shared
    filled(loaded._loaded.pages, loaded._executor, engines.random_ids(200, 512, seed=2))
    other = _native.KvCache(loaded._loaded.pages)
    other.adopt([page], 64)
    logits = loaded._executor.forward([(other, np.array(IDS[64:], np.int32), "last")])[0]
    assert logits.tobytes() == loaded.logits(IDS)[-1].tobytes()


# ---- logits --------------------------------------------------------------------------------------


def read_ahead(engine: Engine, ids: list[int]) -> None:
    assert engine.generate(ids, max_tokens=0).finish_reason == "length"


@pytest.mark.parametrize("length", [1, PAGE - 1, PAGE, PAGE + 1, 150])
def test_a_prompt_that_was_read_ahead_leaves_nothing_to_process(
    engine: Engine, cold: Engine, length: int
) -> None:
    read_ahead(engine, IDS[:length])
    passes: list[int] = []
    forward = engine._forward
    engine._forward = lambda batch: passes.append(1) or forward(batch)  # type: ignore
    one = engine.generate(IDS[:length], **{**GREEDY, "max_tokens": 1})
    assert one.logprobs == cold.generate(IDS[:length], **{**GREEDY, "max_tokens": 1}).logprobs
    assert not passes
    assert one.stats.cached_tokens == length
    longer = engine.generate(IDS[:length], **GREEDY)
    assert longer.logprobs == cold.generate(IDS[:length], **GREEDY).logprobs


def test_logits_are_those_of_the_very_text(engine: Engine, cold: Engine) -> None:
    read_ahead(engine, IDS[:100])
    for ids in (IDS[:99], IDS[:101], [*IDS[:99], IDS[0]]):
        expected = cold.new_session()
        expected.feed(ids)
        found = engine.new_session()
        assert found.feed(ids) >= 1
        assert np.array_equal(found.logits(), expected.logits())


def test_logits_go_with_their_page_and_are_few(engine: Engine) -> None:
    for start in range(MAX_LOGITS + 3):
        read_ahead(engine, IDS[start : start + 5])
    kept = [engine.prefix_cache.find_logits(IDS[n : n + 5]) for n in range(MAX_LOGITS + 3)]
    assert [found is not None for found in kept] == [False] * 3 + [True] * MAX_LOGITS
    del kept
    engine.new_session().feed(IDS[10:30])  # goes on from one of them
    assert engine.prefix_cache.find_logits(IDS[10:15]) is None
    engine.prefix_cache.clear()
    assert engine.prefix_cache.find_logits(IDS[12:17]) is None


def test_what_did_not_come_is_forgotten_unless_a_text_goes_on_from_it(engine: Engine) -> None:
    cache = engine.prefix_cache
    read_ahead(engine, IDS[:70])
    read_ahead(engine, [*IDS[:66], 1, 2])
    assert cache.num_pages == 3
    cache.forget(IDS[:69], 0)  # no text ends here
    cache.forget(IDS[:64], 0)  # the beginning of others
    cache.forget(IDS[:70], 70)
    cache.forget([], 0)
    assert cache.num_pages == 3
    cache.forget(IDS[:70], 66)
    assert cache.num_pages == 2
    assert cache.find(IDS[:70])[1] == 66
    cache.forget([*IDS[:66], 1, 2], 64)
    assert cache.num_pages == 1
    read_ahead(engine, IDS[:150])
    cache.forget(IDS[:150], 10)
    assert cache.num_pages == 0
