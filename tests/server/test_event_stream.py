"""Streams to clients that read, that do not, and that are gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from inferno.server import event_stream
from inferno.server.event_stream import EventStream, event, to_json
from inferno.server.failures import RequestFailed, invalid


class Client:
    """The other side of a response: takes so many chunks, then no more."""

    def __init__(self, patience: int = 1000) -> None:
        self.taken: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.is_gone = asyncio.Event()
        self.cancelled = 0
        self._patience = patience

    async def receive(self) -> Any:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.headers = dict(message["headers"])
            return
        if len(self.taken) == self._patience:
            await asyncio.Event().wait()  # for ever: the socket's buffers are full
        self.taken.append(message["body"])

    def cancel(self) -> None:
        self.cancelled += 1

    async def read(self, chunks: AsyncIterator[bytes], **options: Any) -> None:
        stream = EventStream(chunks, self.cancel, **options)
        await stream({"type": "http"}, self.receive, self.send)


async def endless() -> AsyncIterator[bytes]:
    while True:
        await asyncio.sleep(0)
        yield b"x"


def test_a_stream_is_sent_to_its_end_and_no_length_is_claimed() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield event({"a": 1})
        yield event({"b": "\ud800"})

    async def scenario() -> None:
        client = Client()
        await client.read(pieces())
        assert client.taken == [b'data: {"a":1}\n\n', b'data: {"b":"?"}\n\n', b""]
        assert b"content-length" not in client.headers
        assert client.headers[b"cache-control"] == b"no-cache"
        assert client.cancelled == 1

    asyncio.run(scenario())


def test_a_client_that_stops_reading_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SEND_SECONDS", 0.02)

    async def scenario() -> None:
        client = Client(patience=3)
        await asyncio.wait_for(client.read(endless()), 30)
        assert client.taken == [b"x"] * 3  # nothing piles up behind what was not taken
        assert client.cancelled == 1

    asyncio.run(scenario())


def test_a_client_that_reads_slowly_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two chunks the engine may take its time: only what is not taken counts."""
    monkeypatch.setattr(event_stream, "SEND_SECONDS", 0.01)

    async def scenario() -> None:
        proceed = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"a"
            asyncio.get_running_loop().call_later(0.1, proceed.set)
            await proceed.wait()
            yield b"b"

        client = Client()
        await client.read(slow())
        assert client.taken == [b"a", b"b", b""]

    asyncio.run(scenario())


def test_a_client_that_is_gone_ends_the_stream() -> None:
    async def scenario() -> None:
        client = Client()
        asyncio.get_running_loop().call_soon(client.is_gone.set)
        await asyncio.wait_for(client.read(endless()), 30)
        assert client.cancelled == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "said", "kept"),
    [(invalid("n", "`n`: no"), "`n`: no", True), (RuntimeError("my secret"), "secret", False)],
)
def test_a_failure_in_mid_stream_is_an_event_and_no_secret(
    error: Exception, said: str, kept: bool
) -> None:
    async def fails() -> AsyncIterator[bytes]:
        yield b"first"
        raise error

    async def scenario() -> None:
        client = Client()
        await client.read(fails())
        assert client.taken[0] == b"first"
        assert client.taken[1].startswith(b'data: {"error":')
        assert (said in json.loads(client.taken[1][6:])["error"]["message"]) is kept
        assert client.taken[2:] == [b""]

    asyncio.run(scenario())


def test_what_fails_before_anything_is_sent_can_still_have_a_status() -> None:
    async def fails() -> AsyncIterator[bytes]:
        raise invalid("n", "`n`: no")
        yield b""

    async def scenario() -> None:
        client = Client()
        with pytest.raises(RequestFailed, match="`n`: no"):
            await client.read(fails())
        assert not client.taken and not client.headers
        assert client.cancelled == 1

    asyncio.run(scenario())


def test_numbers_that_json_has_not_are_a_mistake_and_no_json() -> None:
    with pytest.raises(ValueError):
        to_json(float("nan"))
