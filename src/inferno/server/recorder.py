"""Replies that go into the conversations that they belong to, while they are written.

So a tab that is closed loses nothing of its reply, and a crash the last second at most.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request

from inferno.server.conversations import ID, Conversations
from inferno.server.failures import invalid
from inferno.server.fields import Fields

log = logging.getLogger("inferno.server")

SAVE_SECONDS = 1.0


class Recorder:
    """The thread that saves replies, in the order in which they come."""

    def __init__(self, kept: Conversations) -> None:
        self.kept = kept
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="inferno-recorder")

    def close(self) -> None:
        """Save what is left."""
        self.thread.shutdown()


class Record:
    """Saves one reply into `message` of `conversation`, after the text that was there `before`.

    Made and called in the event loop. What goes wrong is logged, and the reply goes on.
    """

    def __init__(self, recorder: Recorder, conversation: str, message: str, before: str) -> None:
        self._recorder = recorder
        self._place = conversation, message
        self._before = before
        self._text = ""
        self._saved = time.monotonic()
        self._is_over = False

    def take(self, text: str) -> None:
        """Note all that has come so far, and save it if that was not done for a while."""
        self._text = text
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self._save("writing", None)

    def end(self, status: str, finish_reason: str | None = None) -> None:
        """Save the end, "complete" or "interrupted"; what comes after the first does not count."""
        if not self._is_over:
            self._is_over = True
            self._save(status, finish_reason)

    def _save(self, status: str, finish_reason: str | None) -> None:
        content = self._before + self._text
        self._saved = time.monotonic()

        def save() -> None:
            try:
                self._recorder.kept.write(*self._place, content, status, finish_reason)
            except Exception as error:
                log.warning("a reply was not saved: %s", type(error).__name__)

        try:
            self._recorder.thread.submit(save)
        except RuntimeError:  # the server has ended
            log.warning("the end of a reply was not saved")


def record_of(request: Request, fields: Fields, before: str) -> Record | None:
    """Return what saves the reply to a request, if its `x-message-id` says where: the id of a
    conversation, a slash, the id of a message that is being written. Raises RequestFailed."""
    value = request.headers.get("x-message-id")
    if value is None:
        return None
    conversation, _, message = value.partition("/")
    if not ID.fullmatch(conversation) or not ID.fullmatch(message):
        raise invalid(
            "x-message-id",
            "`x-message-id`: expected the ids of a conversation and of a message, with a slash "
            "between",
        )
    recorder: Recorder | None = request.app.state.recorder
    if recorder is None:
        fields.note("x-message-id")
        return None
    return Record(recorder, conversation, message, before)
