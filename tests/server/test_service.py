"""What routes share: the ids of recent prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import engines
from inferno import Engine
from inferno.chat import ChatTemplate
from inferno.server.prompts import ChatPrompt
from inferno.server.service import RecentPrompts


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return engines.load(engines.tiny_gguf(tmp_path / "tiny.gguf", format="q4_0", context=256))


def prompt(text: str, **fields: Any) -> ChatPrompt:
    messages = [{"role": "user", "content": text}]
    base = {
        "tools": None,
        "variables": {},
        "add_generation_prompt": True,
        "continue_final_message": False,
    }
    return ChatPrompt(messages, **{**base, "drops_oldest_turns": False, **fields})


def test_a_prompt_that_comes_again_is_not_tokenized_again(engine: Engine) -> None:
    recent, asked = RecentPrompts(engine), prompt("Hello there")
    assert not recent.knows(asked)
    ids = recent.ids(asked)
    assert recent.knows(asked)
    engine.encode_chat = None  # type: ignore
    assert recent.ids(asked) == ids
    assert ids[0] is not recent.ids(asked)[0]


def test_every_field_of_a_prompt_counts(engine: Engine) -> None:
    recent = RecentPrompts(engine)
    recent.ids(prompt("Hello"))
    for other in (
        prompt("Hello "),
        prompt("Hello", variables={"x": 1}),
        prompt("Hello", tools=[{"type": "function", "function": {"name": "f"}}]),
        prompt("Hello", add_generation_prompt=False),
        prompt("Hello", add_generation_prompt=False, continue_final_message=True),
    ):
        assert not recent.knows(other)
        assert recent.ids(other) == other.ids(engine)


def test_as_many_are_known_as_fill_the_context_twice(engine: Engine) -> None:
    recent = RecentPrompts(engine)
    asked = [prompt(f"{n} and so on and on and on " * 3) for n in range(40)]
    lengths = [len(recent.ids(one)[0]) for one in asked]
    known = [length for one, length in zip(asked, lengths, strict=True) if recent.knows(one)]
    assert known == lengths[-len(known) :]
    assert 2 * engine.context - max(lengths) < sum(known) <= 2 * engine.context


def test_a_template_that_reads_the_clock_is_asked_again(engine: Engine) -> None:
    engine.template = ChatTemplate("{{ strftime_now('%f') }}{{ messages[0].content }}")
    recent = RecentPrompts(engine)
    recent.ids(prompt("Hello"))
    assert not recent.knows(prompt("Hello"))
