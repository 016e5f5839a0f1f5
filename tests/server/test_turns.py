"""A turn as it comes: its thought and its content."""

from __future__ import annotations

import pytest

from inferno.server.turns import Thinking, Turn


@pytest.mark.parametrize(
    ("text", "is_over", "said"),
    [
        ("<think>Well, ", False, "<think>\nWell,"),
        ("<think>Well.</think>", False, "<think>\nWell."),
        ("<think>Well.</think>\n\nHi", True, "<think>\nWell.\n</think>\n\nHi"),
        ("Hi", True, "Hi"),
    ],
)
def test_what_was_said_has_its_thought_in_front_between_tags(
    text: str, is_over: bool, said: str
) -> None:
    turn = Turn(thinking=Thinking(may=True, is_open=False))
    for character in text:
        turn.push(character)
    turn.push("", is_over=is_over)
    assert turn.said.rstrip() == said
