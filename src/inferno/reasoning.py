"""Thoughts and replies apart: `<think>…</think>` at the start of a text, as it comes.

Knows text and the two tags; which models think is their templates' to say.
"""

from __future__ import annotations

from collections.abc import Collection

OPEN, CLOSE = "<think>", "</think>"


def thinks(template: str, control_tokens: Collection[str]) -> bool:
    """Tell whether models with this template may think in text before they reply."""
    are_text = OPEN not in control_tokens and CLOSE not in control_tokens
    return OPEN in template and CLOSE in template and are_text


class ReasoningReader:
    """Cuts a text into a thought and a reply; `is_open` if the prompt has begun the thought."""

    def __init__(self, *, is_open: bool) -> None:
        self._state = "thought" if is_open else "start"
        self._rest = ""
        self._is_begun = False  # the part that is being read: blanks before it are left out

    def push(self, text: str) -> tuple[str, str]:
        """Take the next piece; return what has become certain of the thought, and of the reply."""
        if self._state == "reply" and self._is_begun:
            return "", text
        self._rest += text
        if self._state == "start":
            begun = self._rest.lstrip()
            if begun.startswith(OPEN):
                self._state, self._rest = "thought", begun[len(OPEN) :]
            elif OPEN.startswith(begun):
                return "", ""
            else:
                self._state, self._is_begun = "reply", True
                rest, self._rest = self._rest, ""
                return "", rest
        thought = self._read_thought() if self._state == "thought" else ""
        return thought, self._read_reply() if self._state == "reply" else ""

    def finish(self) -> tuple[str, str]:
        """End the text; return what was held back."""
        rest, self._rest = self._rest, ""
        if self._state == "thought":
            return rest.rstrip(), ""
        return "", "" if self._state == "reply" else rest

    def _read_thought(self) -> str:
        if not self._is_begun:
            self._rest = self._rest.lstrip()
        place = self._rest.find(CLOSE)
        if place >= 0:
            thought = self._rest[:place].rstrip()
            self._rest = self._rest[place + len(CLOSE) :]
            self._state, self._is_begun = "reply", False
            return thought
        rest = self._rest
        held = next(n for n in range(len(CLOSE) - 1, -1, -1) if rest.endswith(CLOSE[:n]))
        certain = len(rest[: len(rest) - held].rstrip())
        thought, self._rest = rest[:certain], rest[certain:]
        self._is_begun = self._is_begun or bool(thought)
        return thought

    def _read_reply(self) -> str:
        rest, self._rest = self._rest, ""
        rest = rest if self._is_begun else rest.lstrip()
        self._is_begun = self._is_begun or bool(rest)
        return rest
