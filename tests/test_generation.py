"""The loop: what it says, when it stops, what it reports, and how it survives being stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engines
from inferno import ContextFull, Engine, InvalidOption, InvalidText, SamplingParams, Session
from reference import forward

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
EOS = 2
BYTE = {value: 3 + value for value in range(256)}  # ids of <0x00> ... <0xFF>


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.fixture(scope="module")
def small(stories_gguf: Path) -> Engine:
    """A context that is soon full."""
    return engines.load(stories_gguf, context=64)


@pytest.fixture
def session(engine: Engine) -> Session:
    session = engine.new_session()
    session.feed("Once upon a time")
    return session


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("inferno.session.PREFILL_ROWS", 16)
    yield


def forced(*ids: int, **more: Any) -> dict[str, Any]:
    """Let nothing be sampled but `ids`."""
    return {"temperature": 0, "logit_bias": dict.fromkeys(ids, 100), **more}


# ---- reading -------------------------------------------------------------------------------------


def test_greedy_takes_the_argmax_of_the_logits(engine: Engine) -> None:
    ids = [1, 403, 407]
    tokens = engine.generate(ids, **GREEDY).tokens
    logits = engine.logits([*ids, *tokens])
    assert list(tokens) == logits[len(ids) - 1 : -1].argmax(axis=1).tolist()


def test_pieces_join_to_the_text(engine: Engine) -> None:
    generation = engine.generate("Once", temperature=1, seed=3, max_tokens=60)
    pieces = list(generation)
    assert all(pieces)
    assert "".join(pieces) == generation.text == str(generation)
    assert generation.text == engine.tokenizer.decode(generation.tokens, previous=403)


def test_a_generation_iterated_twice_gives_the_same_pieces(engine: Engine) -> None:
    generation = engine.generate("Once", temperature=1, max_tokens=30)
    first = list(generation)
    assert list(generation) == first
    assert len(generation.tokens) == 30


def test_two_readers_in_turns_see_the_same_pieces(engine: Engine) -> None:
    generation = engine.generate("Once", temperature=1, max_tokens=30)
    a, b = iter(generation), iter(generation)
    read = [(next(a), next(b)) for _ in range(10)]
    assert all(x == y for x, y in read)
    assert [x for x, _ in read] + list(a) == list(generation)


def test_the_text_of_a_generation_read_in_part_is_whole(engine: Engine) -> None:
    expected = engine.generate("Once", **GREEDY).text
    generation = engine.generate("Once", **GREEDY)
    next(iter(generation))
    assert generation.text == expected


def test_nothing_is_computed_before_it_is_read(engine: Engine, session: Session) -> None:
    before = session.tokens
    generation = session.generate(**GREEDY)
    assert session.tokens == before
    next(iter(generation))
    assert len(session) > len(before)


def test_a_generation_left_alone_leaves_a_session_that_goes_on(session: Session) -> None:
    expected = session.fork().generate(**GREEDY)
    generation = session.generate(**GREEDY)
    pieces = iter(generation)
    read = [next(pieces) for _ in range(5)]
    del generation, pieces
    rest = session.generate(temperature=0, max_tokens=40 - (len(session) - 5))
    assert "".join(read) + rest.text == expected.text
    assert session.logits().tobytes() == session._engine.logits(session.tokens)[-1].tobytes()


# ---- when to stop --------------------------------------------------------------------------------


def test_max_tokens_ends_with_length(engine: Engine) -> None:
    for count in (1, 2, 17):
        generation = engine.generate("Once", temperature=0, max_tokens=count)
        assert (len(generation.tokens), generation.finish_reason) == (count, "length")


def test_no_tokens_are_a_prefill_alone(session: Session) -> None:
    before = session.tokens
    generation = session.generate(max_tokens=0)
    assert (generation.text, generation.tokens, generation.finish_reason) == ("", (), "length")
    assert session.tokens == before
    assert generation.stats.prompt_tokens == len(before)
    assert generation.stats.generated_tokens == 0


def test_the_end_of_text_ends_with_stop_and_is_not_part_of_it(session: Session) -> None:
    before = session.tokens
    generation = session.generate(**forced(EOS, max_tokens=10))
    assert (generation.text, generation.tokens, generation.finish_reason) == ("", (), "stop")
    assert session.tokens == before


def test_an_ignored_end_of_text_is_a_token_like_others(session: Session) -> None:
    generation = session.generate(**forced(EOS, max_tokens=10, ignore_eos=True))
    assert (generation.tokens, generation.finish_reason) == ((EOS,) * 10, "length")
    assert generation.text == ""


def test_a_full_context_ends_with_length_and_the_session_goes_on(small: Engine) -> None:
    session = small.new_session()
    session.feed("Once upon a time")
    start = len(session)
    generation = session.generate(temperature=0, max_tokens=1000)
    assert generation.finish_reason == "length"
    assert len(session) == small.context
    assert len(generation.tokens) == small.context - start

    again = session.generate(temperature=0, max_tokens=5)
    assert (again.text, again.tokens, again.finish_reason) == ("", (), "length")
    with pytest.raises(ContextFull):
        session.feed(" more")
    session.truncate(start)
    assert session.generate(temperature=0, max_tokens=1000).text == generation.text


def test_a_prompt_that_fills_the_context_leaves_no_room(small: Engine) -> None:
    generation = small.generate([1] * small.context, temperature=0)
    assert (generation.text, generation.finish_reason) == ("", "length")


def test_a_prompt_longer_than_the_context_is_refused_at_once(small: Engine) -> None:
    with pytest.raises(ContextFull, match="0 of 64 tokens used, 65 more wanted, 1 too many"):
        small.generate([1] * 65)
    with pytest.raises(ContextFull):
        small.chat("why? " * 100)


def test_an_empty_prompt_starts_from_bos_or_is_refused(engine: Engine, llama_gguf: Path) -> None:
    assert engine.generate("", **GREEDY).text.startswith("Once upon a time")
    without_bos = engines.load(llama_gguf)
    for empty in ("", b"", [], ()):
        with pytest.raises(InvalidText, match="prompt is empty"):
            without_bos.generate(empty)
    with pytest.raises(InvalidText, match="prompt is empty"):
        engine.generate([])
    assert without_bos.generate("the", **GREEDY).tokens


def test_an_empty_session_has_nothing_to_go_on_from(engine: Engine) -> None:
    session = engine.new_session()
    with pytest.raises(InvalidOption, match="session is empty"):
        _ = session.generate(**GREEDY).text
    session.feed("Once")
    assert session.generate(**GREEDY).text


# ---- stop strings --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5, 11])
def test_no_character_of_a_stop_string_is_shown(engine: Engine, length: int) -> None:
    whole = engine.generate("Once", **GREEDY).text
    for start in range(20, 40):
        stop = whole[start : start + length]
        generation = engine.generate("Once", stop=stop, **GREEDY)
        assert "".join(generation) == whole[: whole.index(stop)]
        assert generation.finish_reason == "stop"


def test_the_first_of_several_stop_strings_counts(engine: Engine) -> None:
    generation = engine.generate("Once", stop=["Lily", "little", "girl"], **GREEDY)
    assert generation.text.endswith("there was a ")
    assert generation.finish_reason == "stop"


def test_what_was_held_back_is_shown_when_the_text_ends(engine: Engine) -> None:
    whole = engine.generate("Once", temperature=0, max_tokens=10)
    stop = whole.text[-4:] + "\u2603"  # begins, and never ends
    generation = engine.generate("Once", temperature=0, max_tokens=10, stop=stop)
    assert (generation.text, generation.finish_reason) == (whole.text, "length")

    session = engine.new_session()
    session.feed("Once")
    ended = session.generate(**forced(BYTE[ord("a")], max_tokens=3, stop="aaaa"))
    assert (ended.text, ended.finish_reason) == ("aaa", "length")


def test_a_session_goes_on_after_a_stop_string(session: Session) -> None:
    """The tokens that spelled the stop string are part of it."""
    expected = session.fork().generate(**GREEDY).tokens
    first = session.generate(stop="little", **GREEDY).tokens
    rest = session.generate(temperature=0, max_tokens=40 - len(first)).tokens
    assert first + rest == expected


# ---- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_limit_within_a_character_gives_one_replacement(session: Session, count: int) -> None:
    llama = "\U0001f999".encode()
    text = ""
    for byte in llama[:count]:
        generation = session.generate(**forced(BYTE[byte], max_tokens=1))
        text = generation.text
        assert generation.finish_reason == "length"
    assert text == "\ufffd"


def test_bytes_that_are_no_characters_are_still_text(session: Session) -> None:
    generation = session.generate(**forced(BYTE[0xE6], max_tokens=5))
    assert set("".join(generation)) == {"\ufffd"}
    json.dumps(generation.text).encode("utf-8")


@pytest.mark.parametrize("seed", range(5))
def test_hot_text_of_a_random_model_is_always_utf_8(llama_gguf: Path, seed: int) -> None:
    engine = engines.load(llama_gguf)
    hot = {"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 200}
    generation = engine.generate("the", seed=seed, ignore_eos=True, **hot)
    assert "".join(generation).encode("utf-8")
    assert len(generation.tokens) == 200


# ---- what is reported ----------------------------------------------------------------------------


def test_stats_count_the_prompt_and_what_was_cached(engine: Engine) -> None:
    session = engine.new_session()
    fed = session.feed("Once upon a time")
    stats = session.generate(**GREEDY).stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (fed, fed, 40)
    assert stats.prefill_seconds >= 0
    assert stats.decode_seconds > 0
    assert (stats.drafted, stats.accepted) == (0, 0)

    cold = engine.generate("Once upon a time", **GREEDY).stats
    assert (cold.prompt_tokens, cold.cached_tokens, cold.generated_tokens) == (fed, 0, 40)


def test_stats_are_those_of_the_whole_generation(engine: Engine) -> None:
    generation = engine.generate("Once", **GREEDY)
    next(iter(generation))
    assert generation.stats.generated_tokens == 40


def test_logprobs_are_those_of_the_raw_logits(engine: Engine) -> None:
    hot = {"temperature": 1.7, "repetition_penalty": 1.3, "logit_bias": {400: 2.0}}
    generation = engine.generate([1, 403], logprobs=5, seed=1, max_tokens=20, **hot)
    tokens = generation.tokens
    expected = forward.log_probabilities(engine.logits([1, 403, *tokens]))[1:]
    assert [entry.token for entry in generation.logprobs] == list(tokens)
    for entry, row in zip(generation.logprobs, expected, strict=False):
        assert entry.logprob == pytest.approx(row[entry.token], abs=1e-6)
        best = np.argsort(-row, kind="stable")[:5]
        assert [id for id, _ in entry.top] == best.tolist()
        assert [p for _, p in entry.top] == pytest.approx(row[best].tolist(), abs=1e-6)


def test_logprobs_are_only_there_when_asked_for(engine: Engine) -> None:
    assert engine.generate("Once", **GREEDY).logprobs == ()


def test_the_seed_that_was_drawn_can_be_used_again(engine: Engine) -> None:
    hot = {"temperature": 1.5, "max_tokens": 30, "ignore_eos": True}
    drawn = [engine.generate("Once", **hot) for _ in range(3)]
    assert len({generation.seed for generation in drawn}) == 3
    assert len({generation.tokens for generation in drawn}) == 3
    for generation in drawn:
        assert engine.generate("Once", seed=generation.seed, **hot).tokens == generation.tokens


def test_a_draw_is_keyed_by_its_position(engine: Engine) -> None:
    """A sampled text that is interrupted and gone on with is the text that was not."""
    hot = {"temperature": 1.0, "seed": 11, "ignore_eos": True}
    whole = engine.generate("Once", max_tokens=30, **hot).tokens
    session = engine.new_session()
    session.feed("Once")
    parts = [session.generate(max_tokens=count, **hot).tokens for count in (1, 12, 17)]
    assert sum(parts, ()) == whole


# ---- cancelling ----------------------------------------------------------------------------------


def test_a_generation_cancelled_before_it_began_says_nothing(session: Session) -> None:
    before = session.tokens
    generation = session.generate(**GREEDY)
    generation.cancel()
    assert (generation.text, generation.finish_reason) == ("", "cancelled")
    assert session.tokens == before


@pytest.mark.usefixtures("small_chunks")
def test_a_prefill_cancelled_midway_keeps_what_was_processed(engine: Engine) -> None:
    prompt = engines.random_ids(150, 512)
    expected = engine.generate(prompt, **GREEDY).text
    session = engine.new_session()
    generation = session.generate(**GREEDY)
    session._append(prompt)
    with engines.watched(engine, lambda n: generation.cancel() if n == 4 else None) as watch:
        assert (generation.text, generation.finish_reason) == ("", "cancelled")
    assert watch.passes == 5
    assert (generation.stats.prompt_tokens, generation.stats.cached_tokens) == (150, 0)

    again = session.generate(**GREEDY)
    assert again.text == expected
    assert again.stats.cached_tokens == 5 * 16


@pytest.mark.usefixtures("small_chunks")
def test_a_chat_sent_again_after_it_was_cancelled_starts_where_it_was(engine: Engine) -> None:
    question = "Tell me a story of a cat and a dog and a bird and a big red ball in the park."
    expected = engine.chat(question, **GREEDY).text
    session = engine.new_session()
    cancelled = engine.chat(question, session=session, **GREEDY)
    with engines.watched(engine, lambda n: cancelled.cancel() if n == 2 else None):
        assert cancelled.finish_reason == "cancelled"
    again = engine.chat(question, session=session, **GREEDY)
    assert again.text == expected
    assert again.stats.cached_tokens == 3 * 16


def test_a_generation_cancelled_in_mid_decode_ends_after_its_step(session: Session) -> None:
    expected = session.fork().generate(**GREEDY)
    generation = session.generate(**GREEDY)
    pieces = []
    for piece in generation:
        pieces.append(piece)
        if len(pieces) == 7:
            generation.cancel()
    assert len(pieces) == 7
    assert generation.finish_reason == "cancelled"
    assert generation.text == "".join(pieces)
    rest = session.generate(temperature=0, max_tokens=40 - len(generation.tokens))
    assert generation.text + rest.text == expected.text


def test_cancelling_a_finished_generation_changes_nothing(engine: Engine) -> None:
    generation = engine.generate("Once", **GREEDY)
    text = generation.text
    generation.cancel()
    assert (generation.text, generation.finish_reason) == (text, "length")


# ---- when something fails ------------------------------------------------------------------------


def test_an_error_while_sampling_is_told_to_everyone_who_asks(session: Session) -> None:
    before = session.tokens
    generation = session.generate(temperature=0, logit_bias=dict.fromkeys(range(512), -100))
    for ask in (str, list, lambda g: g.tokens, lambda g: g.finish_reason, lambda g: g.stats):
        with pytest.raises(InvalidOption, match="bans every token"):
            ask(generation)
    assert session.tokens == before
    assert session.generate(**GREEDY).text


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_a_session_goes_on_after_a_decode_that_failed(
    engine: Engine, session: Session, error: type[Exception]
) -> None:
    def fail(n: int) -> None:
        if n == 9:
            raise error

    start = len(session)
    expected = session.fork().generate(**GREEDY).tokens
    generation = session.generate(**GREEDY)
    pieces = iter(generation)
    read = [next(pieces)]
    with engines.watched(engine, fail), pytest.raises(error):
        read.extend(pieces)
    with pytest.raises(error):
        _ = generation.finish_reason
    assert session.tokens[start:] == expected[:10]
    assert session.generate(temperature=0, max_tokens=30).tokens == expected[10:]
    assert session.tokens[start:] == expected


def test_an_interrupted_generation_was_cancelled(engine: Engine, session: Session) -> None:
    def interrupt(n: int) -> None:
        if n == 5:
            raise KeyboardInterrupt

    generation = session.generate(**GREEDY)
    pieces = iter(generation)
    read = [next(pieces)]
    with engines.watched(engine, interrupt), pytest.raises(KeyboardInterrupt):
        read.extend(pieces)
    assert generation.finish_reason == "cancelled"
    assert generation.text == "".join(read)
    assert generation.stats.generated_tokens == len(generation.tokens) == 6


def test_a_bias_outside_the_vocabulary_is_refused_at_once(engine: Engine) -> None:
    with pytest.raises(InvalidOption, match="512 is not in the vocabulary of 512"):
        engine.generate("Once", logit_bias={512: 1})


def test_an_unknown_option_is_an_error_that_names_it(engine: Engine, session: Session) -> None:
    for generate in (session.generate, lambda **o: engine.chat("a", **o)):
        with pytest.raises(InvalidOption, match="`max_token`") as caught:
            generate(max_token=1)
        assert caught.value.hint == "did you mean `max_tokens`?"
    with pytest.raises(InvalidOption, match="`params`"):
        session.generate({"temperature": 1})  # type: ignore[arg-type]


def test_params_and_overrides_join(session: Session) -> None:
    params = SamplingParams(temperature=0, max_tokens=3)
    expected = session.fork().generate(temperature=0, max_tokens=5).tokens
    assert session.fork().generate(params, max_tokens=5).tokens == expected
    assert len(session.generate(params).tokens) == 3


# ---- company -------------------------------------------------------------------------------------


def test_python_threads_generating_at_once_get_what_each_gets_alone(engine: Engine) -> None:
    def text(seed: int) -> str:
        return engine.generate("Once upon", seed=seed, temperature=1, max_tokens=60).text

    alone = [text(seed) for seed in range(12)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(text, range(12))) == alone


def test_sessions_that_take_turns_do_not_mix(engine: Engine) -> None:
    prompts = ("Once upon", "The cat", "Lily")
    alone = [list(engine.generate(prompt, **GREEDY)) for prompt in prompts]
    streams = [iter(engine.generate(prompt, **GREEDY)) for prompt in prompts]
    found: list[list[str]] = [[], [], []]
    while any(len(f) < len(a) for f, a in zip(found, alone, strict=True)):
        for pieces, stream in zip(found, streams, strict=True):
            pieces.extend(piece for piece in [next(stream, "")] if piece)
    assert found == alone
