from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engines
from inferno.errors import InvalidOption
from inferno.text_stream import TextStream
from inferno.tokenizer import Tokenizer, tokenizer_for
from inferno.weights import open_checkpoint
from vocabularies import AWKWARD, byte_level, sentencepiece_like, stories


@functools.cache
def default_model() -> Tokenizer:
    with open_checkpoint(engines.default_model()) as checkpoint:
        return tokenizer_for(checkpoint)


TOKENIZERS = {
    "byte-level": byte_level,
    "sentencepiece": sentencepiece_like,
    "stories": stories,
    "default model": default_model,
}
any_tokenizer = pytest.mark.parametrize(
    "kind",
    [*list(TOKENIZERS)[:-1], pytest.param("default model", marks=pytest.mark.real_model)],
)


@functools.cache
def words() -> Tokenizer:
    """Return a vocabulary whose tokens are bytes and a few words that stop strings cut."""
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "abcd",
        "bc",
        "xaby",
        "STOP",
        "ST",
        "OP",
        "\u2581END\u2581",
        "é",
        "aa",
    ]
    return Tokenizer.from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": texts,
            "tokenizer.ggml.scores": [0.0] * len(texts),
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(texts) - 259),
            "tokenizer.ggml.add_space_prefix": False,
            "tokenizer.ggml.eos_token_id": 2,
        }
    )


def ids(*tokens: str) -> list[int]:
    found = [words().token_id(token) for token in tokens]
    assert None not in found
    return [id for id in found if id is not None]


def stream(
    tokenizer: Tokenizer, tokens: list[int], stop: Any = (), **options: Any
) -> tuple[list[str], bool]:
    text_stream = TextStream(tokenizer, stop, **options)
    pieces = []
    for id in tokens:
        pieces.append(text_stream.push(id))
        if text_stream.stopped:
            break
    return [*pieces, text_stream.finish()], text_stream.stopped


def first_stop(text: str, stop: list[str]) -> str:
    """Return `text` before the stop string that is complete first; the longest of several."""
    for end in range(1, len(text) + 1):
        found = [s for s in stop if s and text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))]
    return text


@any_tokenizer
@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_pieces_joined_equal_the_one_shot_decode(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    tokens = tokenizer.encode(text)
    pieces, stopped = stream(tokenizer, tokens)
    assert "".join(pieces) == tokenizer.decode(tokens) == text
    assert not stopped
    assert not any("\ufffd" in piece for piece in pieces)


@any_tokenizer
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_ids_stream_to_what_they_decode_to(kind: str, data: Any) -> None:
    tokenizer = TOKENIZERS[kind]()
    token = st.integers(0, tokenizer.vocab_size - 1)
    tokens, previous = data.draw(st.lists(token)), data.draw(st.none() | token)
    pieces, _ = stream(tokenizer, tokens, previous=previous)
    assert "".join(pieces) == tokenizer.decode(tokens, previous=previous)


@any_tokenizer
@settings(deadline=None, max_examples=250)
@given(data=st.data())
def test_nothing_of_a_stop_string_leaks_and_nothing_before_it_is_lost(kind: str, data: Any) -> None:
    tokenizer = TOKENIZERS[kind]()
    # Some vocabularies have no token for some control characters.
    tokens = tokenizer.encode(data.draw(st.text(alphabet="ab\n é😀<") | st.text()))
    text = tokenizer.decode(tokens)
    stop = data.draw(st.lists(st.text(alphabet="ab\n é😀<", max_size=5), max_size=4))
    if text and data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(text) - 1))
        stop.append(text[start : data.draw(st.integers(start + 1, len(text)))])
    pieces, stopped = stream(tokenizer, tokens, stop)
    assert "".join(pieces) == first_stop(text, stop)
    assert stopped == any(s in text for s in stop if s)


@any_tokenizer
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_ids_stream_to_what_they_decode_to_before_a_stop_string(kind: str, data: Any) -> None:
    """Bytes that are no characters, control tokens, and stop strings that begin or end in them."""
    tokenizer = TOKENIZERS[kind]()
    token = st.integers(0, min(tokenizer.vocab_size, 300) - 1) | st.integers(
        0, tokenizer.vocab_size - 1
    )
    tokens = data.draw(st.lists(token, max_size=40))
    whole = tokenizer.decode(tokens)
    stop = data.draw(st.lists(st.text(alphabet="ab\ufffd ", min_size=1, max_size=3), max_size=3))
    if whole:
        start = data.draw(st.integers(0, len(whole) - 1))
        stop.append(whole[start : data.draw(st.integers(start + 1, len(whole)))])
    text_stream, pieces, shown = TextStream(tokenizer, stop), [], ""
    for id in tokens:
        pieces.append(text_stream.push(id))
        shown += pieces[-1]
        assert whole.startswith(shown)  # what was shown is never taken back
        if text_stream.stopped:
            break
    pieces.append(text_stream.finish())
    assert "".join(pieces) == first_stop(whole, stop)


def test_text_is_held_back_only_while_it_may_become_a_stop_string() -> None:
    text_stream = TextStream(words(), ["STOP"])
    a, s, st_, x = ids("<0x61>", "<0x53>", "ST", "<0x78>")
    assert [text_stream.push(id) for id in (a, s, st_, x)] == ["a", "", "S", "STx"]


def test_a_stop_string_inside_one_token_cuts_it() -> None:
    assert stream(words(), ids("<0x2E>", "xaby", "STOP"), ["ab"]) == ([".", "x", ""], True)


def test_a_stop_string_over_several_tokens_is_swallowed_whole() -> None:
    assert stream(words(), ids("<0x2E>", "ST", "OP", "aa"), ["STOP"]) == ([".", "", "", ""], True)


def test_overlapping_stop_strings_end_at_the_first_complete_one() -> None:
    assert stream(words(), ids("abcd"), ["bcd", "bc"]) == (["a", ""], True)
    tokens = ids("<0x61>", "<0x61>", "bc")
    assert stream(words(), tokens, ["aab", "abc"]) == (["", "", "", ""], True)
    assert stream(words(), ids("abcd"), ["bcd", "d", "abcd"]) == (["", ""], True)


def test_a_possible_stop_string_is_flushed_at_the_end() -> None:
    assert stream(words(), ids("<0x61>", "ST"), ["STOP"]) == (["a", "", "ST"], False)
    assert stream(words(), ids("<0x61>", "ST", "</s>"), ["STOP"]) == (["a", "", "", "ST"], False)


def test_dangling_bytes_become_one_replacement_character() -> None:
    first, second = ids("<0xF0>", "<0x9F>")
    assert stream(words(), [first, second]) == (["", "", "\ufffd"], False)
    assert stream(words(), [first, second, *ids("bc")]) == (["", "", "\ufffdbc", ""], False)


def test_a_character_is_emitted_when_it_is_complete() -> None:
    tokens = ids("<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "é")
    assert stream(words(), tokens) == (["", "", "", "🦙", "é", ""], False)


def test_nothing_comes_after_a_stop() -> None:
    text_stream = TextStream(words(), ["bc"])
    assert text_stream.push(ids("bc")[0]) == ""
    assert text_stream.stopped
    assert text_stream.push(ids("aa")[0]) == ""
    assert text_stream.finish() == ""


def test_empty_stop_strings_mean_nothing() -> None:
    assert stream(words(), ids("aa", "bc"), [""]) == (["aa", "bc", ""], False)


def test_a_very_long_stop_string_costs_no_more_than_its_text() -> None:
    stop = "a" * 50_000
    pieces, stopped = stream(words(), ids("aa") * 30_000, [stop, stop + "b"])
    assert stopped
    assert "".join(pieces) == ""


def test_a_continuation_keeps_its_space_and_a_beginning_does_not() -> None:
    tokens = stories().encode("upon a time")
    assert "".join(stream(stories(), tokens)[0]) == "upon a time"
    assert "".join(stream(stories(), tokens, previous=stories().bos_id)[0]) == "upon a time"
    after_text = stories().encode("Once")[-1]
    assert "".join(stream(stories(), tokens, previous=after_text)[0]) == " upon a time"


def test_control_tokens_add_no_text() -> None:
    assert stream(words(), ids("aa", "</s>", "bc")) == (["aa", "", "bc", ""], False)


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Token id"):
        TextStream(words()).push(words().vocab_size)
