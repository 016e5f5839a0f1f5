"""Has a draft processed while it is typed, in a thread of its own. Knows no terminal.

Only the prefix cache remembers it, so that it can save work and change nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from inferno.errors import InfernoError

if TYPE_CHECKING:
    from inferno import Generation

# So long after the last key: typing a word does not begin anew with each letter.
PAUSE_SECONDS = 0.2


class ReadAhead:
    """The newest draft takes the place of older ones; `begin` starts what processes one."""

    def __init__(
        self, begin: Callable[[str], Generation | None], pause: float = PAUSE_SECONDS
    ) -> None:
        self._begin = begin
        self._pause = pause
        self._condition = threading.Condition()
        # Changed under the condition.
        self._draft: str | None = None
        self._running: Generation | None = None
        self._is_idle = True
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def offer(self, draft: str) -> None:
        """Take `draft` for the newest; returns at once."""
        with self._condition:
            self._draft = draft
            self._is_idle = False
            self._cancel()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="inferno-read-ahead", daemon=True
                )
                self._thread.start()
            self._condition.notify_all()

    def stop(self) -> None:
        """Give the draft up, and wait until nothing is being processed."""
        with self._condition:
            self._draft = None
            self._cancel()
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._is_idle)

    def close(self) -> None:
        """Stop, and end the thread: what it would process, an engine, must not outlive Python."""
        self.stop()
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._is_idle = self._draft is None
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._draft is not None or self._is_closed)
                if self._is_closed:
                    return
                draft = self._draft
                self._condition.wait(self._pause)
                if draft is None or self._draft is not draft:
                    continue
                self._draft = None
            self._process(draft)

    def _process(self, draft: str) -> None:
        # What is wrong with a draft is said when it is sent.
        try:
            generation = self._begin(draft)
            if generation is None:
                return
            with self._condition:
                self._running = generation
                if self._draft is not None:
                    generation.cancel()
            _ = generation.text
        except InfernoError:
            pass
        finally:
            with self._condition:
                self._running = None
