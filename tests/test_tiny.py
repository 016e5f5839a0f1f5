"""The truth in a minute: a real, tiny model is loaded, speaks, streams, forgets and forks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import engines
from inferno import Engine


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.fixture(scope="module")
def story(stories_greedy: dict[str, Any]) -> str:
    """What the model says greedily, from the start: 200 tokens."""
    return str(stories_greedy["text"])


def test_a_model_tells_its_story(engine: Engine, story: str) -> None:
    assert engine.generate("", temperature=0, max_tokens=200).text == story


def test_a_story_streams_in_pieces(engine: Engine, story: str) -> None:
    pieces = list(engine.generate("", temperature=0, max_tokens=200))
    assert len(pieces) > 100
    assert "".join(pieces) == story


def test_the_same_seed_tells_the_same_story(engine: Engine) -> None:
    texts = [str(engine.generate("Once", seed=s, temperature=1, max_tokens=40)) for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_session_goes_on_where_it_was_cut_back(engine: Engine, story: str) -> None:
    session = engine.new_session()
    session.feed("")
    first = session.generate(temperature=0, max_tokens=30).text
    session.feed(" The end. Nothing more is to be told.")
    session.truncate(31)
    assert first + session.generate(temperature=0, max_tokens=170).text == story


def test_a_fork_goes_its_own_way(engine: Engine, story: str) -> None:
    session = engine.new_session()
    session.feed("")
    first = session.generate(temperature=0, max_tokens=30).text
    fork = session.fork()
    fork.feed(" Suddenly")
    other = fork.generate(temperature=0, max_tokens=20).text
    rest = session.generate(temperature=0, max_tokens=170).text
    assert first + rest == story
    assert not rest.startswith(other)


def test_a_chat_has_an_answer(engine: Engine) -> None:
    answer = engine.chat("Tell me about a cat.", temperature=0, max_tokens=20)
    assert answer.text
    assert answer.finish_reason in ("stop", "length")
