"""Real servers on free ports of this machine, in threads, and what they answer."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

import engines
from inferno import Engine
from inferno.server.conversations import Conversations
from inferno.server.guard import Access
from inferno.server.listener import Server, bind
from inferno.server.service import Service, Settings

PATIENCE = 60.0  # seconds until a test that hangs fails


class Running:
    """A server that runs, its address, and a client for it."""

    def __init__(self, server: Server, url: str) -> None:
        self.server = server
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=PATIENCE)

    @property
    def service(self) -> Service:
        assert self.server.loading.service is not None
        return self.server.loading.service

    @property
    def engine(self) -> Engine:
        return self.service.engine

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.client.post(path, json=body, **options)

    def chat(self, text: str = "Hello", **fields: Any) -> httpx.Response:
        """Ask for a short greedy reply to `text`."""
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 8}
        return self.post("/v1/chat/completions", {**body, **fields})


@contextlib.contextmanager
def running(
    load: Callable[[], Engine],
    settings: Settings | None = None,
    access: Access | None = None,
    port: int = 0,
    conversations: Conversations | None = None,
) -> Iterator[Running]:
    """Serve on `port`, or a free one, until the block ends."""
    listening = bind("127.0.0.1", port)
    port = listening.getsockname()[1]
    server = Server(load, listening, settings or Settings(grace_seconds=1), access, conversations)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    it = Running(server, f"http://127.0.0.1:{port}")
    try:
        yield it
    finally:
        it.client.close()
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not end"
        if failures:
            raise failures[0]


def wait_until_loaded(it: Running) -> Running:
    assert it.server.loaded.wait(PATIENCE), "the model was never loaded"
    return it


def load_engine(path: Path) -> Engine:
    """Load an engine that keeps prefixes, unlike those of other tests."""
    engine = engines.load(path, threads=2)
    engine.prefix_cache.capacity = 1 << 28
    return engine


def events_of(response: httpx.Response) -> list[Any]:
    """Parse the events of a stream: JSON objects, and "[DONE]" as it is."""
    assert response.headers["content-type"].startswith("text/event-stream")
    found = []
    for line in response.text.split("\n\n"):
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
        else:
            assert not line or line.startswith(":"), line
    return found


def error_of(response: httpx.Response) -> dict[str, Any]:
    """Return the error of a response, which has OpenAI's shape and a 4xx or 5xx."""
    body = response.json()
    assert response.status_code >= 400
    assert list(body) == ["error"]
    assert {"message", "type", "param", "code"} <= set(body["error"])
    return dict(body["error"])
