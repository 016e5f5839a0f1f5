"""Texts of a wanted number of tokens, cut by letters and by words."""

from __future__ import annotations

import random

import pytest

from inferno.bench.texts import random_texts


def letters(text: str) -> list[int]:
    """Cut a text as a poor vocabulary does: a token a letter, and BOS."""
    return [1, *map(ord, text)]


def words(text: str) -> list[int]:
    """Cut a text as a rich vocabulary does: a token a word, and BOS."""
    return [1, *(hash(word) for word in text.split())]


@pytest.mark.parametrize("tokens", [17, 50, 499])
@pytest.mark.parametrize("encode", [letters, words])
def test_a_text_has_the_tokens_asked_for(encode, tokens: int) -> None:
    prompt = random_texts(encode)(random.Random(0), tokens)
    assert prompt.ids == encode(prompt.text)
    # A word and its space are three letters or more, so that up to two may be missing.
    assert tokens - (2 if encode is letters else 0) <= len(prompt.ids) <= tokens


def test_no_two_texts_begin_alike() -> None:
    source = random_texts(words)
    texts = [source(random.Random(0), 20).text for _ in range(50)]
    assert len({text[:8] for text in texts}) == 50


def test_a_text_shorter_than_its_nonce_is_the_nonce() -> None:
    prompt = random_texts(letters)(random.Random(0), 3)
    assert len(prompt.text) == 8 and len(prompt.ids) == 9
