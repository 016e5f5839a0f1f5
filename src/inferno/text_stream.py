"""Ids to text as it comes: complete characters only, and never a byte of a stop string.

Knows token ids and strings, nothing of how the ids are made or where the text goes.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence

from inferno.tokenizer import Tokenizer


class TextStream:
    """Turn ids, one at a time, into pieces of text that are certain.

    Joined, the pieces are `tokenizer.decode(ids, previous=previous)` up to the first stop string;
    the first is the one that is complete first, and of those that end together the longest.
    `previous` is the id before the stream, such as the last of the prompt. Control tokens are no
    text, but for those of `visible`. `stopped` turns true when a stop string is complete; nothing
    is emitted after it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        *,
        previous: int | None = None,
        visible: Collection[int] = (),
    ) -> None:
        self.stopped = False
        self._tokenizer = tokenizer
        self._visible = visible
        self._previous = previous
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matchers = [_Matcher(text) for text in dict.fromkeys(stop) if text]
        self._held = ""  # the end of the text so far that may yet become a stop string

    def push(self, token_id: int) -> str:
        """Take the next id; return the text that has become certain, often none.

        Raises:
            InvalidOption: `token_id` is outside the vocabulary.
        """
        shows = token_id in self._visible
        piece = self._tokenizer.piece(token_id, previous=self._previous, special=shows)
        self._previous = token_id
        return self._advance(self._decoder.decode(piece))

    def finish(self) -> str:
        """End the stream; return the text held back, dangling bytes as one U+FFFD."""
        certain = self._advance(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return certain + rest

    def _advance(self, text: str) -> str:
        if self.stopped or not text or not self._matchers:
            return "" if self.stopped else text
        start, text = len(self._held), self._held + text
        matched: list[int] = []
        for end in range(start + 1, len(text) + 1):
            matched = [matcher.advance(text[end - 1]) for matcher in self._matchers]
            complete = [n for n, m in zip(matched, self._matchers, strict=True) if n == len(m.text)]
            if complete:
                self.stopped, self._held = True, ""
                return text[: end - max(complete)]
        border = len(text) - max(matched)
        self._held = text[border:]
        return text[:border]


class _Matcher:
    """How much of one stop string the text so far ends with, kept up to date per character.

    Source: Knuth, Morris and Pratt, "Fast pattern matching in strings" (1977).
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._matched = 0
        self._fallback = [0] * len(text)  # longest proper prefix of text that text[:i+1] ends with
        for index in range(1, len(text)):
            self._fallback[index] = self._step(self._fallback[index - 1], text[index])

    def advance(self, character: str) -> int:
        """Take one character; return how many characters of the stop string end the text."""
        self._matched = self._step(self._matched, character)
        return self._matched

    def _step(self, matched: int, character: str) -> int:
        while matched and self.text[matched] != character:
            matched = self._fallback[matched - 1]
        return matched + (self.text[matched] == character)
