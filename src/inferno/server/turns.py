"""A turn of the assistant as it comes: what of its text is thought, content, or calls of tools."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inferno import reasoning
from inferno.reasoning import ReasoningReader
from inferno.tool_calls import ID_CHARACTERS, CallReader, Piece, ToolFormat

if TYPE_CHECKING:
    from inferno.engine import Engine
    from inferno.generation import Generation

# Of tokens, enough to hold a tag and the blanks around it.
_TAIL = 16


@dataclass(frozen=True)
class Thinking:
    """Whether turns may begin with a thought, and whether the prompt has begun it already."""

    may: bool
    is_open: bool

    @property
    def rule(self) -> str | None:
        """Return, in Lark, how a thought goes on to its end; None if there is none."""
        begins = "TEXT" if self.is_open else f'"{reasoning.OPEN}" TEXT'
        return f'{begins} "{reasoning.CLOSE}"' if self.may else None

    @classmethod
    def after(cls, ids: Sequence[int], engine: Engine) -> Thinking:
        """Return what follows the prompt `ids`."""
        if not reasoning.thinks(engine.template.template, engine.tokenizer.control_tokens):
            return cls(False, False)
        tail = engine.tokenizer.decode(ids[-_TAIL:], special=True).rstrip()
        return cls(True, tail.endswith(reasoning.OPEN))


def tokens_of_thought(engine: Engine, generation: Generation) -> int:
    """Return how many tokens there are up to the end of the thought that a text begins with."""
    end, tail, count = reasoning.CLOSE.encode(), b"", 0
    for count, token in enumerate(generation.tokens, 1):  # noqa: B007 - the last one counts
        tail = tail[-len(end) :] + engine.tokenizer.token_bytes(token)
        if end in tail:
            break
    return count


@dataclass
class Call:
    """A call of a tool, so far."""

    name: str
    id: str = field(
        default_factory=lambda: "".join(
            secrets.choice(string.ascii_letters + string.digits) for _ in range(ID_CHARACTERS)
        )
    )
    arguments: str = ""


@dataclass
class Part:
    """What is new of a turn: a piece of its thought, of its content, or of a call."""

    reasoning: str = ""
    content: str = ""
    call: int = -1
    begins: bool = False
    arguments: str = ""


class Turn:
    """Takes the text of one choice, and has its thought, content and calls so far."""

    def __init__(self, format: ToolFormat | None = None, thinking: Thinking | None = None) -> None:
        self.reasoning = ""
        self.content = ""
        self.calls: list[Call] = []
        self._reasons = (
            ReasoningReader(is_open=thinking.is_open) if thinking and thinking.may else None
        )
        self._reads_calls = CallReader(format) if format is not None else None

    @property
    def said(self) -> str:
        """The content so far, after the thought, which stands between its tags."""
        if not self.reasoning:
            return self.content
        end = f"\n{reasoning.CLOSE}\n\n{self.content}" if self.content else ""
        return f"{reasoning.OPEN}\n{self.reasoning}{end}"

    def push(self, text: str, *, is_over: bool = False) -> list[Part]:
        """Take the next piece of text, the last one if `is_over`; return what is certain of it."""
        if self._reasons is None and self._reads_calls is None:
            self.content += text
            return [Part(content=text)] if text else []
        parts = []
        thought, text = ("", text) if self._reasons is None else self._reasons.push(text)
        if is_over and self._reasons is not None:
            more = self._reasons.finish()
            thought, text = thought + more[0], text + more[1]
        if thought:
            self.reasoning += thought
            parts.append(Part(reasoning=thought))
        reader = self._reads_calls
        pieces = [Piece(text)] if text and reader is None else []
        if reader is not None:
            pieces += reader.push(text) if text else []
            pieces += reader.finish() if is_over else []
        return [*parts, *map(self._part, pieces)]

    def finish_reason(self, reason: str) -> str:
        """Return why the turn is over, of why its text is."""
        reader = self._reads_calls
        is_called = reason == "stop" and reader is not None and reader.num_complete
        return "tool_calls" if is_called else reason

    def _part(self, piece: Piece) -> Part:
        if piece.call < 0:
            self.content += piece.content
            return Part(content=piece.content)
        if piece.name:
            self.calls.append(Call(piece.name))
        self.calls[piece.call].arguments += piece.arguments
        return Part(call=piece.call, begins=bool(piece.name), arguments=piece.arguments)
