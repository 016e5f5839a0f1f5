"""What is cut at control tokens and remembered has the ids that the library gives to the whole."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from inferno.tokenizer import Tokenizer, stretches
from inferno.tokenizer.stretches import Stretches
from vocabularies import (
    AWKWARD,
    CONTROL,
    byte_level,
    sentencepiece_like,
    stories,
    trained_byte_level,
)

TOKENIZERS = {"byte-level": byte_level, "sentencepiece": sentencepiece_like, "stories": stories}
LONG = "The quick brown fox jumps over the lazy dog, again and again."
texts = st.lists(
    st.sampled_from([*AWKWARD, *CONTROL, "<s>", "</s>", "<think>", "<|im_", "\u2581", LONG]),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None, max_examples=200)
@given(text=texts, previous=st.sampled_from([None, 1, 300]))
def test_ids_are_those_of_the_whole_text(kind: str, text: str, previous: Any) -> None:
    tokenizer = TOKENIZERS[kind]()
    whole = tokenizer._encode(text, True, tokenizer.invents_space(previous))
    for _ in range(2):  # the second time they are remembered
        assert tokenizer.encode(text, special=True, previous=previous) == whole


def test_added_tokens_that_are_no_control_tokens_take_what_they_match(tmp_path: Any) -> None:
    backend = tokenizers.Tokenizer.from_str(trained_byte_level().to_str())
    backend.add_tokens([AddedToken("<<|", special=False, normalized=False)])
    backend.add_tokens([AddedToken("<|a|>", special=True), AddedToken("<|a|>b", special=True)])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json", None)
    for text in ("x<<|a|>y", "x<|a|>y", "x<|a|>by", "<|a|><<|<|a|>b", "<<<|a|>"):
        assert tokenizer.encode(text, special=True) == backend.encode(text).ids


def test_a_long_text_is_encoded_once_and_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stretches, "MAX_CHARACTERS", 100)
    encoded: list[str] = []

    def encode(text: str, special: bool, at_start: bool) -> list[int]:
        encoded.append(text)
        return [len(text), special, at_start]

    remembered = Stretches([])
    first, second, third = "a" * 40, "b" * 40, "c" * 40
    for text in (first, second, first, third, first, second):
        assert remembered.ids(text, True, False, encode) == [40, True, False]
    assert encoded == [first, second, third, second]
    assert remembered.ids(first, False, False, encode) == [40, False, False]  # another question
    for _ in range(2):
        assert remembered.ids("d" * 101, True, True, encode) == [101, True, True]
        assert remembered.ids("e" * 10, True, True, encode) == [10, True, True]
    assert [len(text) for text in encoded[5:]] == [101, 10, 101, 10]


def test_threads_that_encode_at_once_all_get_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "MAX_CHARACTERS", 200)
    tokenizer = byte_level()
    texts = [f"{LONG} {number}" for number in range(8)]
    expected = [tokenizer._encode(text, True, True) for text in texts]
    wrong: list[str] = []

    def work() -> None:
        for _ in range(20):
            for text, ids in zip(texts, expected, strict=True):
                if tokenizer.encode(text, special=True) != ids:
                    wrong.append(text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
