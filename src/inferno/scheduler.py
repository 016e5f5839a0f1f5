"""Many generations at once: whose rows are in the next forward pass.

One thread runs the engine. Each of its steps is one pass over a row of every text that is being
written, and a chunk of a prompt that is being read. Which company a row had changes none of its
bits, so every text is what it would be alone. Knows no HTTP; who listens is somebody's function.
"""

from __future__ import annotations

import enum
import itertools
import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inferno.errors import Busy, InfernoError, NativeError, OutOfMemory
from inferno.prefix_cache import PAGE_POSITIONS, common_length
from inferno.session import PREFILL_ROWS, Pending, Rows

if TYPE_CHECKING:
    from inferno.engine import Engine
    from inferno.generation import Generation

# More texts at once are written faster in sum but each slower; those beyond wait, and then go fast.
MAX_STREAMS = 16
MAX_WAITING = 64

# A pass that reads a prompt lasts about this long: nobody's text stands still for longer, and that
# long is how late a cancellation may be. Longer passes are more efficient, so where nobody else is
# there they may take LONE_FACTOR times that.
CHUNK_SECONDS = 0.1
LONE_FACTOR = 4
# Pieces of a text are told together that come within this time of one another, the first at once:
# what each costs on its way to a client, the passes lose. Eyes read more slowly.
PIECES_SECONDS = 0.05
# The weights are read once a pass: fewer rows than this cost hardly less.
FEWEST_ROWS = 16


# Of the memory for pages, what is taken from the system while there is nothing else to do: in a
# virtual machine the first touch of a page takes longer than a token. By default one context.
READY_PART = 1 / 4
IDLE_SECONDS = 0.5  # until it is likely that nothing comes at once


class Priority(enum.IntEnum):
    """Who goes first. A draft that is still being typed waits for every text that is asked for."""

    INTERACTIVE = 0
    BACKGROUND = 1
    COMPOSE = 2


@dataclass(frozen=True)
class Update:
    """What is new of a stream: text, or how much of the prompt is read; `is_over` in the last one.

    `num_tokens` were generated so far. `error` is why it is over, if not because the text is.
    """

    text: str = ""
    num_tokens: int = 0
    processed_tokens: int = 0
    is_over: bool = False
    error: InfernoError | None = None


@dataclass
class Totals:
    """What all streams took together, since the start."""

    requests: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    passes: int = 0
    decoding_rows: int = 0  # streams that were in a pass with their next token, summed
    preempted: int = 0


@dataclass(eq=False)
class Stream:
    """A generation under way, and who listens to it; made by `Scheduler.submit`.

    `listener` is called by the thread that runs the engine, and must not wait.
    """

    generation: Generation
    priority: Priority
    listener: Callable[[Update], None]
    number: int
    pending: Pending | None = None
    is_cancelled: bool = False
    is_over: bool = False
    told_at: float = 0.0  # when there was news
    turn: int = 0  # of the prompts that are being read, the one with the lowest is next
    _told: int = field(default=0, repr=False)  # pieces of text

    @property
    def rank(self) -> tuple[int, int]:
        return (self.priority, self.number)

    @property
    def tokens(self) -> Sequence[int]:
        session, prompt = self.generation._session, self.generation._prompt
        return session._tokens if self.pending is not None or prompt is None else prompt

    @property
    def is_reading(self) -> bool:
        """Tell whether it is still at its prompt, or at all that it lost when it was preempted."""
        return self.pending is not None and self.pending.remaining > 1

    def news(self) -> str:
        """Return the text that has come since the last time."""
        pieces = self.generation._pieces
        text, self._told = "".join(pieces[self._told :]), len(pieces)
        if text:
            self.told_at = time.perf_counter()
        return text


class _Visit:
    """A turn with the engine that another thread waits for."""

    def __init__(self) -> None:
        self.begins, self.ends = threading.Event(), threading.Event()
        self.is_refused = False


class Scheduler:
    """Runs generations of one engine together, in a thread of its own."""

    def __init__(
        self, engine: Engine, *, max_streams: int = MAX_STREAMS, max_waiting: int = MAX_WAITING
    ) -> None:
        self.totals = Totals()
        self._engine = engine
        self._max_streams = max_streams
        self._max_waiting = max_waiting
        self._numbers, self._turns = itertools.count(), itertools.count()
        self._rows_per_second: float | None = None  # of passes that read prompts
        self._pass_seconds = 0.0  # that the last pass took
        self._condition = threading.Condition()
        # Changed under the condition; only the thread changes `_running`.
        self._waiting: list[Stream] = []
        self._running: list[Stream] = []
        self._visits: deque[_Visit] = deque()
        self._is_closing = False
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inferno-engine", daemon=True)
        self._thread.start()
        self._closed = threading.Event()
        self._memory = threading.Thread(
            target=self._prepare_memory, name="inferno-memory", daemon=True
        )
        self._memory.start()

    # ---- for any thread --------------------------------------------------------------------------

    def submit(
        self,
        generation: Generation,
        listener: Callable[[Update], None],
        priority: Priority = Priority.INTERACTIVE,
    ) -> Stream:
        """Queue a generation that nobody has read from; its session is the scheduler's from now on.

        Raises:
            Busy: too many are waiting already, or the scheduler is closing.
        """
        return self.submit_all([(generation, listener)], priority)[0]

    def submit_all(
        self,
        generations: Sequence[tuple[Generation, Callable[[Update], None]]],
        priority: Priority = Priority.INTERACTIVE,
    ) -> list[Stream]:
        """Queue several generations, or none of them. Raises Busy as `submit`."""
        with self._condition:
            if self._is_closing:
                raise _closing()
            # What can start at once does not wait.
            room = self._max_waiting + max(0, self._max_streams - len(self._running))
            if len(self._waiting) + len(generations) > room:
                raise Busy(
                    f"Too many requests: {len(self._waiting)} are waiting, expected at most "
                    f"{self._max_waiting}",
                    hint="ask again later",
                )
            streams = [
                Stream(generation, priority, listener, next(self._numbers))
                for generation, listener in generations
            ]
            for stream in streams:
                insort(self._waiting, stream, key=lambda s: s.rank)
            self.totals.requests += len(streams)
            self._condition.notify()
        return streams

    def cancel(self, stream: Stream) -> None:
        """End `stream` after the pass that is running, if it is not over; what it read is kept."""
        with self._condition:
            stream.is_cancelled = True
            self._condition.notify()

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_healthy(self) -> bool:
        return self._thread.is_alive()

    def expected_wait(self) -> float:
        """Return the seconds until a place in the queue is likely to be free."""
        totals = self.totals
        done = max(1, totals.requests - len(self._waiting) - len(self._running))
        seconds = (totals.prefill_seconds + totals.decode_seconds) / done
        return max(1.0, seconds * (1 + len(self._waiting)) / self._max_streams)

    def in_turn(self, work: Callable[[int], int]) -> None:
        """Call `work` between two passes, in this thread, and no more of them meanwhile.

        It is told how many rows a pass of its own may have, and returns how many it had: so much of
        something else as of a prompt would be read between the tokens of those who write.

        Raises:
            Busy: the scheduler is closing.
        """
        visit = _Visit()
        with self._condition:
            if self._is_closing:
                raise _closing()
            self._visits.append(visit)
            self._condition.notify()
        visit.begins.wait()
        try:
            if visit.is_refused:
                raise _closing()
            is_alone = not self._running and not self._waiting
            began = time.perf_counter()
            rows = work(self._rows_of_chunk(is_alone))
            self._learn(rows, time.perf_counter() - began)
        finally:
            visit.ends.set()

    def close(self, seconds: float = 0.0) -> None:
        """Take no more requests; give those that run so many seconds, then cancel all."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._thread.join(seconds)
        with self._condition:
            for stream in [*self._waiting, *self._running]:
                stream.is_cancelled = True
            self._condition.notify()
        self._thread.join()
        self._closed.set()
        self._idle.set()
        self._memory.join()

    # ---- the thread that runs the engine ---------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._condition:
                while not (self._waiting or self._running or self._visits or self._is_closing):
                    self._idle.set()
                    self._condition.wait()
                self._idle.clear()
                visit = self._visits.popleft() if self._visits else None
                if self._is_closing and not self._waiting and not self._running:
                    for late in [visit, *self._visits]:
                        if late is not None:
                            late.is_refused = True
                            late.begins.set()
                    return
            if visit is not None:
                for stream in self._running:  # it may take long
                    self._tell_news(stream)
                visit.begins.set()
                visit.ends.wait()
            try:
                self._step()
            except Exception as error:  # of ours; nobody must wait for ever
                for stream in [*self._running]:
                    self._end(stream, error)

    def _step(self) -> None:
        self._end_cancelled()
        self._admit()
        self._keep_within_memory()
        batch = self._choose()
        if not batch:
            return
        num_read = sum(len(rows[1]) for stream, rows in batch if stream.is_reading)
        num_writing = sum(not stream.is_reading for stream, _ in batch)
        if num_read:  # it may take long
            for stream, _ in batch:
                self._tell_news(stream)
        began = time.perf_counter()
        try:
            logits = self._engine._forward([rows for _, rows in batch])
        except Exception as error:
            # No cache has grown. The newest goes, so that the others can go on.
            self._end(max((stream for stream, _ in batch), key=lambda s: s.rank), error)
            return
        seconds = self._pass_seconds = time.perf_counter() - began
        self.totals.passes += 1
        self.totals.decoding_rows += num_writing
        if num_read >= FEWEST_ROWS:
            self._learn(num_read + num_writing, seconds)
        row = 0
        for stream, rows in batch:
            assert stream.pending is not None
            count = {"none": 0, "last": 1, "all": len(rows[1])}[rows[2]]
            stream.pending.take(rows, logits[row : row + count])
            if len(batch) == 1:
                stream.pending.seconds = (stream.pending.seconds or 0.0) + seconds
            row += count
        for stream, _ in batch:
            assert stream.pending is not None
            if stream.pending.is_done:
                self._go_on(stream)
            else:
                self._tell(stream, Update(processed_tokens=len(stream.pending.session._cache)))

    # ---- who is in the next pass -----------------------------------------------------------------

    def _choose(self) -> list[tuple[Stream, Rows]]:
        """Return what the next pass is over: a token of each text, and a piece of a prompt."""
        writing = [s for s in self._running if not s.is_reading]
        reading = sorted(
            (s for s in self._running if s.is_reading), key=lambda s: (s.priority, s.turn)
        )
        batch = [(s, s.pending.rows(PREFILL_ROWS)) for s in writing if s.pending is not None]
        room = self._rows_of_chunk(is_alone=len(self._running) == 1 and not self._waiting)
        for stream in reading:
            if stream.priority is Priority.COMPOSE and batch:
                if reading[0].priority is not Priority.COMPOSE:
                    break
                room = min(room, FEWEST_ROWS)  # somebody is reading a reply meanwhile
            if room <= 0:
                break
            if self._waits_for_another(stream, reading):
                continue
            assert stream.pending is not None
            rows = stream.pending.rows(room)
            room -= len(rows[1])
            stream.turn = next(self._turns)
            batch.append((stream, rows))
        return batch

    def _rows_of_chunk(self, is_alone: bool) -> int:
        if self._rows_per_second is None:
            return 2 * FEWEST_ROWS
        seconds = CHUNK_SECONDS * (LONE_FACTOR if is_alone else 1)
        return max(FEWEST_ROWS, min(PREFILL_ROWS, int(self._rows_per_second * seconds)))

    def _learn(self, rows: int, seconds: float) -> None:
        """Take note of how fast prompts are read."""
        if rows >= FEWEST_ROWS:
            rate, before = rows / seconds, self._rows_per_second
            self._rows_per_second = rate if before is None else (3 * before + rate) / 4

    def _waits_for_another(self, stream: Stream, reading: Sequence[Stream]) -> bool:
        """Tell whether what `stream` would read is being read for another, and take what is there.

        So the choices of one request, and requests with one system prompt, read it once.
        """
        assert stream.pending is not None
        session = stream.pending.session
        for other in reading:
            # Who came earlier never waits for who came later: somebody always goes on.
            if other.rank >= stream.rank or other.pending is None:
                continue
            known = min(common_length(other.tokens, session._tokens), len(session._tokens) - 1)
            if known > len(session._cache) and self._engine.prefix_cache.capacity:
                if known > len(other.pending.session._cache):
                    return True
                other.pending.session._keep()
        session._prepare()
        return False

    # ---- coming and going ------------------------------------------------------------------------

    def _admit(self) -> None:
        while True:
            with self._condition:
                stream = next(filter(self._may_start, self._waiting[:1]), None)
                if stream is None:
                    return
                self._waiting.remove(stream)
                self._running.append(stream)
            if stream.pending is None:
                self._go_on(stream)
            else:
                stream.pending.session._prepare()

    def _may_start(self, stream: Stream) -> bool:
        running = [s for s in self._running if s.priority is not Priority.COMPOSE]
        if stream.priority is Priority.COMPOSE:
            is_only = len(running) == len(self._running)
            return is_only and (not running or self._has_memory_for(stream))
        # A draft gives way: it is preempted, if memory is short.
        return len(running) < self._max_streams and (not running or self._has_memory_for(stream))

    def _has_memory_for(self, stream: Stream) -> bool:
        asked = _num_pages(len(stream.tokens) + 1)
        held = [s for s in self._running if s.priority <= stream.priority]
        return asked + sum(_num_pages(len(s.tokens) + 1) for s in held) <= self._max_pages()

    def _max_pages(self) -> float:
        capacity = self._engine.prefix_cache.capacity
        return capacity // self._engine._loaded.pages.page_bytes if capacity else float("inf")

    def _keep_within_memory(self) -> None:
        """Put those back that came last, as long as the texts outgrow the memory for them.

        What they have is kept as long as nobody needs the pages; the rest is processed again.
        """
        while len(self._running) > 1:
            pages = sum(_num_pages(len(s.tokens) + 1) for s in self._running)
            if pages <= self._max_pages():
                return
            last = max(self._running, key=lambda s: s.rank)
            self._tell_news(last)
            if last.pending is not None:
                last.pending.draft = ()
                last.pending.session._release()
            self.totals.preempted += 1
            with self._condition:
                self._running.remove(last)
                insort(self._waiting, last, key=lambda s: s.rank)

    def _go_on(self, stream: Stream) -> None:
        """Let a stream draw its token and say what it wants processed next."""
        done = stream.pending
        try:
            may_draft = len(self._running) == 1
            stream.pending = stream.generation._resume(may_draft=may_draft)
            while stream.pending is not None and stream.pending.is_done:
                stream.pending = stream.generation._resume(may_draft=may_draft)
        except Exception as error:
            self._end(stream, error)
            return
        if stream.pending is None:
            self._end(stream)
            return
        if time.perf_counter() + self._pass_seconds >= stream.told_at + PIECES_SECONDS:
            self._tell_news(stream)  # the end of the next pass would be too late
        if done is not None:
            done.close()

    def _end_cancelled(self) -> None:
        with self._condition:
            cancelled = [s for s in [*self._waiting, *self._running] if s.is_cancelled]
        for stream in cancelled:
            stream.generation.cancel()
            if stream.pending is not None:
                self._go_on(stream)  # it notices, and ends
            if not stream.is_over:
                self._end(stream)

    def _end(self, stream: Stream, error: Exception | None = None) -> None:
        with self._condition:
            for streams in (self._running, self._waiting):
                if stream in streams:
                    streams.remove(stream)
        generation, totals = stream.generation, self.totals
        stream.is_over, stream.pending = True, None
        if error is not None and not isinstance(error, InfernoError):
            error = NativeError(f"{type(error).__name__} in the engine: {error}")
        generation._end(error)
        generation._session._release()
        totals.cancelled += generation._finish_reason == "cancelled"
        totals.failed += error is not None
        for name in ("prompt_tokens", "cached_tokens", "generated_tokens", "drafted", "accepted"):
            setattr(totals, name, getattr(totals, name) + getattr(generation._stats, name))
        totals.prefill_seconds += generation._stats.prefill_seconds
        totals.decode_seconds += generation._stats.decode_seconds
        update = Update(stream.news(), len(generation._tokens), is_over=True, error=error)
        self._tell(stream, update)

    def _prepare_memory(self) -> None:
        """Have pages ready, beside the engine."""
        pages = self._engine._loaded.pages
        while not self._closed.is_set():
            self._idle.wait()
            if self._closed.wait(IDLE_SECONDS) or not self._idle.is_set():
                continue
            most = min(self._max_pages(), self._engine.context / PAGE_POSITIONS / READY_PART)
            try:
                while self._idle.is_set() and pages.ready_pages < int(
                    min(most * READY_PART, most - pages.pages_in_use)
                ):
                    pages.prepare_page()
            except OutOfMemory:
                return  # who needs a page will say so
            self._idle.clear()

    def _tell_news(self, stream: Stream) -> None:
        if text := stream.news():
            self._tell(stream, Update(text, len(stream.generation._tokens)))

    def _tell(self, stream: Stream, update: Update) -> None:
        try:
            stream.listener(update)
        except Exception:  # whoever listened is gone
            stream.is_cancelled = True


def _closing() -> Busy:
    return Busy("The engine is closing", hint="ask another server, or again later")


def _num_pages(tokens: int) -> int:
    return -(-tokens // PAGE_POSITIONS)
