"""Answers that come piece by piece: events for OpenAI's clients, lines of JSON for Ollama's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from inferno.server.failures import CLIENT_GONE, RequestFailed, failure_of
from inferno.server.replies import hung_up, unless

# A client that takes nothing for so long is taken to be gone. What it has not taken stays small:
# the transport asks to wait after 64 KB.
SEND_SECONDS = 60.0

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def to_json(value: Any) -> bytes:
    """Return `value` as compact JSON; numbers that JSON has not are a mistake of ours."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )


def event(value: Any) -> bytes:
    return b"data: " + to_json(value) + b"\n\n"


class EventStream(Response):
    """Sends what `chunks` yields as it comes, and stops it when the client hangs up.

    The head is sent with the first chunk, so that what fails before it has a status of its own. A
    failure after it becomes the last chunk, by `failed`. `cancel` is called at the end, whatever
    it was.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        cancel: Callable[[], None],
        *,
        headers: Mapping[str, str] | None = None,
        media_type: str = "text/event-stream",
        failed: Callable[[RequestFailed], bytes] = lambda failure: event(failure.body),
    ) -> None:
        super().__init__(None, headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        self._chunks = chunks
        self._cancel = cancel
        self._is_begun, self._is_sending, self._sent = False, False, 0
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless(self._send_all(send), hung_up(receive), self._stalled())
        except RequestFailed as failure:
            if not self._is_begun and failure.status != CLIENT_GONE:
                raise
        finally:
            self._cancel()

    async def _send_all(self, send: Send) -> None:
        async def put(body: bytes, more: bool = True) -> None:
            self._is_sending = True
            if not self._is_begun:
                self._is_begun = True
                await send({
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                })  # fmt: skip
            await send({"type": "http.response.body", "body": body, "more_body": more})
            self._is_sending, self._sent = False, self._sent + 1

        try:
            async for chunk in self._chunks:
                await put(chunk)
        except Exception as error:
            failure = failure_of(error)
            if not self._is_begun:
                raise failure from error
            await put(self._failed(failure))
        await put(b"", more=False)

    async def _stalled(self) -> None:
        """Return when nothing could be sent for a while."""
        sent = -1
        while not self._is_sending or sent != self._sent:
            sent = self._sent
            await asyncio.sleep(SEND_SECONDS)
