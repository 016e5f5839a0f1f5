"""One conversation: its token ids, and the KV cache of those that were processed.

Knows ids and how much of them is cached. Text goes through the engine's tokenizer; what to
generate is `generation`'s business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inferno import _native
from inferno.errors import ContextFull, InvalidOption
from inferno.excerpt import shown
from inferno.graph import Floats
from inferno.options import SamplingParams
from inferno.prefix_cache import common_length
from inferno.speculation import NgramIndex

if TYPE_CHECKING:
    from inferno.engine import Engine
    from inferno.generation import Generation

# Rows of one forward pass of a prefill. Weights are read once a chunk and activations stay in the
# caches; between chunks a prefill can be cancelled.
PREFILL_ROWS = 256

# What `Executor.forward` takes of each sequence: its cache, ids, and which logits are wanted.
Rows: TypeAlias = "tuple[_native.KvCache, npt.NDArray[np.int32], str]"


class Session:
    """A sequence of tokens that can grow, be cut back and be forked; made by `Engine.new_session`.

    `len(session)` is how many tokens it has. The cache may lag behind `tokens`: what was appended
    last is processed with what comes next. Threads may share a session: each call is one step, and
    others wait for it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tokens: list[int] = []
        self._cache = _native.KvCache(engine._loaded.pages)
        self._next_logits: Floats | None = None  # after the last of `tokens`
        # Guesses of what follows `tokens`: in the cache, but not in the session unless they come.
        self._draft: list[int] = []
        self._draft_logits: Floats | None = None  # a row after each guess
        self._index: NgramIndex | None = None  # of `tokens`, if somebody looked for guesses
        self._lock = threading.RLock()
        self._is_busy = False
        self._revision = 0  # a generation notices by it that others changed the session

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids so far, the prompt's and the generated ones."""
        return tuple(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def __bool__(self) -> bool:
        return True  # an empty session is a session

    def feed(self, text_or_ids: str | Iterable[int]) -> int:
        """Append a raw prompt and process it; return how many tokens were processed.

        What the engine has processed before, for this session or another, is not processed again.
        Text is a raw prompt: control tokens in it count, and the first text of a session starts
        with BOS if the model wants it. For text that others wrote, pass `tokenizer.encode(text)`.

        Raises:
            ContextFull: they do not fit; nothing was appended.
        """
        with self._exclusive():
            previous = self._tokens[-1] if self._tokens else None
            self._drop_draft()
            self._append(self._engine._prompt_ids(text_or_ids, previous=previous))
            self._revision += 1
            return self._process()

    def truncate(self, length: int) -> None:
        """Cut the session back to its first `length` tokens, as if the others had never been.

        What is processed after it gives the same bits as in a new session.

        Raises:
            InvalidOption: `length` is negative or more than there are.
        """
        if isinstance(length, bool) or not isinstance(length, int):
            raise InvalidOption(f"`length`: expected an integer, found {shown(length)}")
        with self._exclusive():
            if not 0 <= length <= len(self._tokens):
                raise InvalidOption(
                    f"`length`: expected 0 to {len(self._tokens)}, the tokens there are, "
                    f"found {shown(length)}"
                )
            self._cut(length)
            self._revision += 1

    def fork(self) -> Session:
        """Return a session with the same tokens.

        Both go on for themselves. They share the pages of the cache that they have in common; a
        page is copied when one of them writes to it.
        """
        with self._exclusive():
            other = Session(self._engine)
            other._tokens = list(self._tokens)
            other._cache = self._cache.fork()
            other._drop_draft()
            other._next_logits = self._next_logits
            return other

    def __copy__(self) -> Session:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Session:
        return self.fork()  # the engine is shared, as everywhere

    def logits(self) -> Floats:
        """Return the logits of the token after the last: (vocab_size,) f32.

        Raises:
            InvalidOption: the session is empty.
        """
        with self._exclusive():
            if not self._tokens:
                raise InvalidOption("`logits`: the session is empty", hint="feed it a token first")
            self._process()
            assert self._next_logits is not None
            return self._next_logits.copy()

    def generate(self, params: SamplingParams | None = None, **overrides: Any) -> Generation:
        """Continue the session.

        Args:
            params: how to choose tokens; None for the model's own defaults.
            overrides: fields of `SamplingParams` that replace those of `params`.

        Returns:
            A reply that is computed as it is read. Its tokens become part of the session one by
            one; while it is read, nobody else may change the session.

        Raises:
            InvalidOption: an override is unknown, or out of range.
        """
        from inferno.generation import Generation

        return Generation(self, self._engine._params(params, overrides))

    # ---- for generation -------------------------------------------------------------------------

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the session for one step; a signal handler cannot come in between.

        Raises:
            InvalidOption: this very thread is in a step already, interrupted by a handler.
        """
        with self._lock:
            if self._is_busy:
                raise InvalidOption("The session is in the middle of a call that was interrupted")
            self._is_busy = True
            try:
                yield
            finally:
                self._is_busy = False

    def _append(self, ids: Sequence[int]) -> None:
        if len(self._tokens) + len(ids) > self._engine.context:
            raise context_full(len(self._tokens), len(ids), self._engine)
        if ids:
            self._drop_draft()
            self._next_logits = None
            self._tokens.extend(ids)

    def _append_drawn(self, id: int) -> bool:
        """Append the token that was drawn; tell whether it had been guessed."""
        if not self._draft or self._draft[0] != id:
            self._append([id])
            return False
        assert self._draft_logits is not None
        self._next_logits, self._draft_logits = self._draft_logits[0], self._draft_logits[1:]
        del self._draft[0]
        self._tokens.append(id)
        return True

    def _drop_draft(self) -> None:
        """Forget the guesses that have not come."""
        self._draft, self._draft_logits = [], None
        if len(self._cache) > len(self._tokens):
            self._cache.truncate(len(self._tokens))

    def _ngrams(self) -> NgramIndex:
        """Return the index of the tokens, which the caller lets grow."""
        if self._index is None:
            self._index = NgramIndex(self._tokens)
        return self._index

    def _cut(self, length: int) -> None:
        self._drop_draft()
        if length < len(self._tokens):
            self._next_logits = None
            self._cache.truncate(min(length, len(self._cache)))
            if self._index is not None:
                self._index.cut(length)
            del self._tokens[length:]

    def _adopt(self, ids: Sequence[int]) -> None:
        """Make `ids` the session's tokens, keeping the common prefix.

        At least the last id is left to be processed, so that there are logits to go on from.
        """
        if len(ids) > self._engine.context:
            raise context_full(0, len(ids), self._engine)
        self._drop_draft()
        keep = min(common_length(self._tokens, ids), len(ids) - 1, len(self._cache))
        self._cut(keep)
        self._append(ids[keep:])

    def _prepare(self) -> int:
        """Ready the cache for what it lacks; return how many tokens need no processing.

        What any session of the engine has processed before is taken over.
        """
        if self._next_logits is not None:
            return len(self._tokens)
        self._drop_draft()
        if kept := self._engine.prefix_cache.find_logits(self._tokens):
            pages, self._next_logits = kept
            self._cache.adopt(pages, len(self._tokens))
            return len(self._tokens)
        # The last token is processed anyway: its logits were not kept.
        known = max(0, len(self._tokens) - 1)
        if len(self._cache) > known:
            self._cache.truncate(known)
        if len(self._cache) < known:
            pages, length = self._engine.prefix_cache.find(self._tokens[:known])
            if length > len(self._cache):
                self._cache.adopt(pages, length)
        return len(self._cache)

    def _keep(self, *, with_logits: bool = False) -> None:
        """Let other sessions have what was processed, and the logits after it if asked for."""
        logits = self._next_logits if with_logits else None
        self._engine.prefix_cache.keep(self._tokens, self._cache, logits)

    def _process(
        self, cancelled: Callable[[], bool] = lambda: False, pending: Pending | None = None
    ) -> int:
        """Process what the cache lacks, in chunks; return how many tokens that were.

        Unless cancelled, `_next_logits` are there afterwards, if there are tokens.
        """
        pending = pending or Pending(self)
        try:
            while not pending.is_done and not cancelled():
                rows = pending.rows(PREFILL_ROWS)
                pending.take(rows, self._engine._forward([rows]))
        finally:
            pending.close()
        return pending.processed

    def _release(self) -> None:
        """Give the cache back, and what it holds to the engine's other sessions."""
        self._drop_draft()
        self._keep()
        self._cache.truncate(0)
        self._next_logits = None  # a row of an array that may be many sessions'


class Pending:
    """What a session's cache lacks, for whoever runs the passes: until `is_done`, `rows`, a pass
    over them, `take`.

    `draft` are guesses of what follows, verified by the last of the passes; the context has room
    for them. `close` when it is done or given up.
    """

    def __init__(self, session: Session, draft: Sequence[int] = ()) -> None:
        self.session = session
        self.draft = draft
        self.processed = 0
        self.seconds: float | None = None  # that the passes took, if nobody else was in them
        session._prepare()

    @property
    def remaining(self) -> int:
        """How many tokens are still to be processed, without guesses."""
        if self.session._next_logits is not None:
            return 0
        return max(0, len(self.session._tokens) - len(self.session._cache))

    @property
    def is_done(self) -> bool:
        return self.remaining == 0

    @property
    def cached(self) -> int:
        """How many tokens are in the cache that were not processed for it."""
        return max(0, min(len(self.session._cache), len(self.session._tokens)) - self.processed)

    def rows(self, limit: int) -> Rows:
        """Return what the next pass should process: at most `limit` tokens, and the guesses."""
        tokens, cache = self.session._tokens, self.session._cache
        self.session._drop_draft()
        chunk = np.array(tokens[len(cache) : len(cache) + limit], dtype=np.int32)
        if len(chunk) < self.remaining:
            return cache, chunk, "none"
        if not len(self.draft):
            return cache, chunk, "last"
        return cache, np.concatenate([chunk, np.array(self.draft, dtype=np.int32)]), "all"

    def take(self, rows: Rows, logits: Floats) -> None:
        """Take the logits of the pass over `rows`."""
        _, ids, wanted = rows
        session, count = self.session, len(self.draft) if wanted == "all" else 0
        self.processed += len(ids) - count
        if wanted != "none":
            session._next_logits = logits[len(logits) - 1 - count]
        if count:
            session._draft, session._draft_logits = list(self.draft), logits[-count:]

    def close(self) -> None:
        if self.processed > 1:  # a prompt, or what there is of it; not a token that was drawn
            self.session._keep()


def context_full(used: int, more: int, engine: Engine) -> ContextFull:
    """Return the error for `more` tokens that do not fit after `used` ones."""
    context, longest = engine.context, engine.config.max_position_embeddings
    excess = used + more - context
    hint = "shorten the prompt, or start a new session"
    if context < longest:
        wanted = min(longest, max(2 * context, used + more))
        extra = (wanted - context) * engine.memory.kv_cache_per_token
        size = f" (needs {extra / 1e6:,.0f} MB more)" if extra >= 1e6 else ""
        hint = f"load with context={wanted}{size}, or {hint}"
    return ContextFull(
        f"Context is full: {used:,} of {context:,} tokens used, {more:,} more wanted, "
        f"{excess:,} too many",
        hint=hint,
    )
