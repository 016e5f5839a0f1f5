"""Passes over texts without a session: who shares one, or takes several, has the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engines
from inferno.passes import hidden_blocks, logit_blocks


def test_an_embedding_knows_nothing_of_its_company(
    stories_gguf: Path, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["Once upon a time", "there was", "a little dog who lived in a big house. " * 3, "x"]
    expected = engines.load(stories_gguf).embed(texts)
    together = engines.load(stories_gguf, isa=isa, threads=2)
    assert together.embed(texts).tobytes() == expected.tobytes()
    monkeypatch.setattr("inferno.passes.MAX_PASS_ROWS", 7)  # texts are cut, and share passes
    assert together.embed(texts).tobytes() == expected.tobytes()
    alone = np.concatenate([together.embed([text]) for text in texts])
    assert alone.tobytes() == expected.tobytes()


def test_logits_from_a_place_on_are_the_last_of_all(stories_gguf: Path) -> None:
    engine = engines.load(stories_gguf)
    ids = engines.random_ids(90, 512, seed=3)
    expected = engine.logits(ids)
    for first in (0, 1, 50, 89):
        assert np.concatenate(list(logit_blocks(engine, ids, first))).tobytes() == (
            expected[first:].tobytes()
        )


def test_a_cache_that_is_handed_in_grows_by_the_rest(stories_gguf: Path) -> None:
    engine = engines.load(stories_gguf)
    ids = engines.random_ids(40, 512, seed=4)
    expected = engine.logits(ids)
    cache = engine._new_cache()
    for end in (10, 11, 40):
        start = len(cache)
        rows = np.concatenate(list(logit_blocks(engine, ids[:end], start, cache)))
        assert len(cache) == end
        assert rows.tobytes() == expected[start:end].tobytes()


def test_a_pass_has_no_more_rows_than_its_turn(stories_gguf: Path) -> None:
    engine = engines.load(stories_gguf)
    texts = [engines.random_ids(length, 512, seed=length) for length in (3, 30, 5)]
    expected = [np.concatenate([rows for _, rows in hidden_blocks(engine, [t])]) for t in texts]
    rooms = iter([1, 4, 2, 16, 3, 8, 8, 8])
    taken: list[tuple[int, int]] = []

    def in_turn(work):  # type: ignore[no-untyped-def]
        room = next(rooms)
        taken.append((room, work(room)))

    found: dict[int, list[np.ndarray]] = {}
    for number, rows in hidden_blocks(engine, texts, in_turn):
        found.setdefault(number, []).append(rows.copy())
    assert all(rows <= room for room, rows in taken)
    assert sum(rows for _, rows in taken) == 38
    for number, rows in enumerate(expected):
        assert np.concatenate(found[number]).tobytes() == rows.tobytes()
