"""One conversation: its token ids, and the KV cache of those that were processed.

Knows ids and how much of them is cached. Text goes through the engine's tokenizer; what to
generate is `generation`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inferno import _native
from inferno.errors import ContextFull, InvalidOption
from inferno.graph import Floats
from inferno.options import SamplingParams

if TYPE_CHECKING:
    from inferno.engine import Engine
    from inferno.generation import Generation

# Rows of one forward pass of a prefill. Weights are read once a chunk and activations stay in the
# caches; between chunks a prefill can be cancelled.
PREFILL_ROWS = 256


class Session:
    """A sequence of tokens that can grow, be cut back and be forked; made by `Engine.new_session`.

    The cache may lag behind `tokens`: what was appended last is processed with what comes next.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tokens: list[int] = []
        self._cache = _native.KvCache(engine._loaded.pages)
        self._next_logits: Floats | None = None  # after the last of `tokens`

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids so far."""
        return tuple(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def __bool__(self) -> bool:
        return True  # an empty session is a session

    def feed(self, text_or_ids: str | Iterable[int]) -> int:
        """Append text or ids and process them; return how many tokens were processed.

        Text is a raw prompt: control tokens in it count, and the first text of a session starts
        with BOS if the model wants it. For text that others wrote, pass `tokenizer.encode(text)`.

        Raises:
            ContextFull: they do not fit; nothing was appended.
        """
        previous = self._tokens[-1] if self._tokens else None
        ids = self._engine._prompt_ids(text_or_ids, previous=previous)
        self._append(ids)
        return self._process()

    def truncate(self, length: int) -> None:
        """Cut the session back to its first `length` tokens.

        Raises:
            InvalidOption: `length` is negative or more than there are.
        """
        if isinstance(length, bool) or not isinstance(length, int):
            raise InvalidOption(f"`length`: expected an integer, found {length!r}")
        if not 0 <= length <= len(self._tokens):
            raise InvalidOption(
                f"`length`: expected 0 to {len(self._tokens)}, the tokens there are, found {length}"
            )
        if length == len(self._tokens):
            return
        with self._engine._lock:
            self._cache.truncate(min(length, len(self._cache)))
        del self._tokens[length:]
        self._next_logits = None

    def fork(self) -> Session:
        """Return a session with the same tokens; the cache is shared until either writes."""
        other = Session(self._engine)
        other._tokens = list(self._tokens)
        with self._engine._lock:
            other._cache = self._cache.fork()
        other._next_logits = self._next_logits
        return other

    def logits(self) -> Floats:
        """Return the logits of the token after the last: (vocab_size,) f32.

        Raises:
            InvalidOption: the session is empty.
        """
        if not self._tokens:
            raise InvalidOption("`logits`: the session is empty", hint="feed it a token first")
        if self._next_logits is None:
            self._process()
        assert self._next_logits is not None
        return self._next_logits.copy()

    def generate(self, params: SamplingParams | None = None, **overrides: Any) -> Generation:
        """Continue the session; iterate the result for text as it comes."""
        from inferno.generation import Generation

        return Generation(self, self._engine._params(params, overrides))

    # ---- for generation -------------------------------------------------------------------------

    def _append(self, ids: Sequence[int]) -> None:
        excess = len(self._tokens) + len(ids) - self._engine.context
        if excess > 0:
            raise context_full(len(self._tokens), len(ids), self._engine)
        self._tokens.extend(ids)
        if ids:
            self._next_logits = None

    def _adopt(self, ids: Sequence[int]) -> int:
        """Make `ids` the session's tokens, keeping the common prefix; return how many are cached.

        At least the last id is left to be processed, so that there are logits to go on from.
        """
        if len(ids) > self._engine.context:
            raise context_full(0, len(ids), self._engine)
        common = 0
        for ours, theirs in zip(self._tokens, ids, strict=False):
            if ours != theirs:
                break
            common += 1
        keep = min(common, len(ids) - 1, len(self._cache))
        self.truncate(keep)
        self._append(ids[keep:])
        return keep

    def _process(self, cancelled: Callable[[], bool] = lambda: False) -> int:
        """Process what the cache lacks, in chunks; return how many tokens that were.

        Unless cancelled, `_next_logits` are there afterwards.
        """
        engine = self._engine
        if len(self._cache) == len(self._tokens) and self._next_logits is None and self._tokens:
            with engine._lock:
                self._cache.truncate(len(self._tokens) - 1)  # its logits were not kept: once more
        processed = 0
        while len(self._cache) < len(self._tokens) and not cancelled():
            start = len(self._cache)
            chunk = np.array(self._tokens[start : start + PREFILL_ROWS], dtype=np.int32)
            is_last = start + len(chunk) == len(self._tokens)
            with engine._lock:
                engine._executor.forward([(self._cache, chunk, "last" if is_last else "none")])
                if is_last:
                    self._next_logits = engine._executor.logits(0, 1)[0]
            processed += len(chunk)
        return processed


def context_full(used: int, more: int, engine: Engine) -> ContextFull:
    """Return the error for `more` tokens that do not fit after `used` ones."""
    context, longest = engine.context, engine.config.max_position_embeddings
    excess = used + more - context
    hint = "shorten the prompt, or start a new session"
    if context < longest:
        wanted = min(longest, max(2 * context, used + more))
        extra = (wanted - context) * engine.memory.kv_cache_per_token
        hint = f"load with context={wanted} (needs {extra / 1e6:,.0f} MB more), or {hint}"
    return ContextFull(
        f"Context is full: {used:,} of {context:,} tokens used, {more:,} more wanted, "
        f"{excess:,} too many",
        hint=hint,
    )
