"""Generated tokens as answers show them: their bytes, and log probabilities along with the text."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferno.engine import Engine
    from inferno.generation import Generation, TokenLogprobs

# What OpenAI's interface says for a log probability of minus infinity, which JSON cannot.
IMPOSSIBLE = -9999.0


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else IMPOSSIBLE


def pieces(
    engine: Engine, ids: Sequence[int], previous: int | None, visible: Collection[int] = ()
) -> Iterator[bytes]:
    """Yield the bytes that each id adds to the text, in which `visible` control tokens show."""
    for id in ids:
        yield engine.tokenizer.piece(id, previous=previous, special=id in visible)
        previous = id


class LogprobStream:
    """Hands out the log probabilities of a generation with the text that they are of.

    A token is due when some of its text has been sent: of what a stop string cut off, none is.
    """

    def __init__(self, engine: Engine, generation: Generation, previous: int, top: int) -> None:
        self._engine = engine
        self._generation = generation
        self._previous = previous
        self._top = top
        self._next = 0
        self._described = 0  # bytes of the tokens so far
        self._sent = 0  # bytes of the text so far

    def due(self, text: str, *, is_over: bool = False) -> list[dict[str, Any]]:
        """Return the entries of the tokens that `text`, the next piece, brings to an end."""
        self._sent += len(text.encode())
        entries = []
        known = self._generation._logprobs
        # Bytes that are no characters are fewer as text, so at the end of a text count nothing.
        takes_rest = is_over and not self._generation.stopped_by_text
        while self._next < len(known) and (takes_rest or self._described < self._sent):
            entry = known[self._next]
            piece = self._piece(entry.token)
            entries.append(self._described_entry(entry, piece))
            self._described += len(piece)
            self._previous, self._next = entry.token, self._next + 1
        return entries

    def _described_entry(self, entry: TokenLogprobs, piece: bytes) -> dict[str, Any]:
        top = [_token(self._piece(id), logprob) for id, logprob in entry.top[: self._top]]
        return {**_token(piece, entry.logprob), "top_logprobs": top}

    def _piece(self, id: int) -> bytes:
        visible = self._generation.params.visible_tokens
        return next(pieces(self._engine, [id], self._previous, visible))


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {
        "token": piece.decode("utf-8", "replace"),
        "logprob": finite(logprob),
        "bytes": list(piece),
    }
