"""Thoughts and replies are told apart, in whatever pieces the text comes."""

from __future__ import annotations

import pytest

from inferno.reasoning import ReasoningReader, thinks


def read(text: str, size: int, *, is_open: bool) -> tuple[str, str]:
    reader = ReasoningReader(is_open=is_open)
    pieces = [reader.push(text[i : i + size]) for i in range(0, len(text), size)]
    pieces.append(reader.finish())
    return "".join(p[0] for p in pieces), "".join(p[1] for p in pieces)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "is_open", "expected"),
    [
        ("<think>\nWell, 1 < 2.\n</think>\n\nYes. ", False, ("Well, 1 < 2.", "Yes. ")),
        ("Well.\n</think>\n\nYes.", True, ("Well.", "Yes.")),
        ("<think>\n\n</think>\n\nYes.", False, ("", "Yes.")),
        ("\n <think>a</think>b", False, ("a", "b")),
        ("  Yes, <think> is a tag", False, ("", "  Yes, <think> is a tag")),
        ("<thin", False, ("", "<thin")),
        (" <", False, ("", " <")),
        ("", False, ("", "")),
        ("never ends </thin", True, ("never ends </thin", "")),
        ("<think>a</think>b</think>c", False, ("a", "b</think>c")),
        ("a </think> b\n\n", True, ("a", "b\n\n")),
    ],
)
def test_a_thought_and_a_reply_are_told_apart(
    size: int, text: str, is_open: bool, expected: tuple[str, str]
) -> None:
    assert read(text, size, is_open=is_open) == expected


def test_who_thinks_is_said_by_the_template_unless_the_tags_are_control_tokens() -> None:
    template = "{% if x %}<think></think>{% endif %}"
    assert thinks(template, [])
    assert not thinks(template, ["<think>"])
    assert not thinks("{{ messages }}", [])
