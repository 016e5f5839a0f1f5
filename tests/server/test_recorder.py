"""Replies that the server keeps while it writes them, whatever becomes of who asked."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import servers
from inferno import Engine
from inferno.server import recorder
from inferno.server.conversations import Conversations, Message
from servers import PATIENCE, Running, error_of

HELLO = {"role": "user", "content": "Hello"}
HEADERS = {"x-message-id": "c/reply"}


@pytest.fixture(scope="module")
def kept() -> Conversations:
    return Conversations("sqlite://")


@pytest.fixture(scope="module")
def server(model: Path, kept: Conversations) -> Iterator[Running]:
    with servers.running(lambda: servers.load_engine(model), conversations=kept) as it:
        yield servers.wait_until_loaded(it)


@pytest.fixture(autouse=True)
def begin(kept: Conversations) -> Iterator[None]:
    """A conversation in which a reply is awaited, as the page keeps it."""
    kept.create("c")
    kept.keep("c", Message("question", None, "user", "Hello"))
    kept.keep("c", Message("reply", "question", "assistant", "", "writing"))
    yield
    kept.delete("c")


def reply_of(kept: Conversations) -> dict[str, Any]:
    return dict(kept.get("c")["messages"][1])


def wait_for_end(kept: Conversations) -> dict[str, Any]:
    tick = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if (found := reply_of(kept))["status"] != "writing":
            return found
        tick.wait(0.01)
    raise AssertionError("the reply was never ended")


@pytest.mark.parametrize("streams", [False, True])
def test_a_reply_is_kept_by_the_server(
    server: Running, kept: Conversations, alone: Engine, streams: bool
) -> None:
    body = {"messages": [HELLO], "temperature": 0, "max_tokens": 8, "stream": streams, "n": 2}
    assert server.post("/v1/chat/completions", body, headers=HEADERS).status_code == 200
    found = wait_for_end(kept)
    assert found["content"] == alone.chat("Hello", temperature=0, max_tokens=8).text
    assert (found["status"], found["finish_reason"]) == ("complete", "length")


def test_what_came_before_the_client_hung_up_is_kept_and_marked(
    server: Running, kept: Conversations, alone: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "SAVE_SECONDS", 0.0)
    forward, passes, is_gone = server.engine._forward, itertools.count(), threading.Event()

    def watched(batch: Any) -> Any:
        if next(passes) == 4:
            assert is_gone.wait(PATIENCE)
        return forward(batch)

    monkeypatch.setattr(server.engine, "_forward", watched)
    body = {"messages": [HELLO], "temperature": 0, "ignore_eos": True, "stream": True}
    with server.client.stream("POST", "/v1/chat/completions", json=body, headers=HEADERS) as got:
        lines = got.iter_lines()
        next(line for line in lines if '"content":"' in line)
        while not (written := reply_of(kept))["content"]:
            pass
        assert written["status"] == "writing"
    is_gone.set()
    found = wait_for_end(kept)
    assert (found["status"], found["finish_reason"]) == ("interrupted", "cancelled")
    assert found["content"].startswith(written["content"])
    whole = alone.chat("Hello", temperature=0, ignore_eos=True).text
    assert whole.startswith(found["content"])
    assert len(found["content"]) < len(whole)


def test_a_reply_that_failed_is_marked_and_no_wish_of_the_reader(
    server: Running, kept: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, passes = server.engine._forward, itertools.count()

    def fails(batch: Any) -> Any:
        if next(passes) == 2:
            raise RuntimeError("a mistake of ours")
        return forward(batch)

    monkeypatch.setattr(server.engine, "_forward", fails)
    body = {"messages": [HELLO], "temperature": 0, "stream": True}
    server.post("/v1/chat/completions", body, headers=HEADERS)
    found = wait_for_end(kept)
    assert (found["status"], found["finish_reason"]) == ("interrupted", None)


def test_a_reply_that_is_gone_on_with_keeps_its_beginning(
    server: Running, kept: Conversations, alone: Engine
) -> None:
    messages = [HELLO, {"role": "assistant", "content": "Once"}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 4}
    answer = server.post("/v1/chat/completions", body, headers=HEADERS).json()
    said = answer["choices"][0]["message"]["content"]
    assert wait_for_end(kept)["content"] == "Once" + said


def test_who_has_ended_a_reply_has_the_last_word(kept: Conversations) -> None:
    kept.write("c", "reply", "Once upon", "writing", None)
    kept.keep("c", Message("reply", "question", "assistant", "Once", "interrupted", "cancelled"))
    kept.write("c", "reply", "Once upon a time", "complete", "stop")
    found = reply_of(kept)
    assert (found["content"], found["finish_reason"]) == ("Once", "cancelled")


def test_a_message_that_is_not_there_is_no_reason_to_give_no_answer(
    server: Running, kept: Conversations
) -> None:
    headers = {"x-message-id": "c/another"}
    body = {"messages": [HELLO], "max_tokens": 2}
    assert server.post("/v1/chat/completions", body, headers=headers).status_code == 200
    assert [message["id"] for message in kept.get("c")["messages"]] == ["question", "reply"]


@pytest.mark.parametrize(
    "value", ["", "c", "c/", "/reply", "c/re ply", "c/reply/x", "c/" + "x" * 65]
)
def test_what_names_no_message_is_refused(server: Running, value: str) -> None:
    body = {"messages": [HELLO], "max_tokens": 2}
    response = server.post("/v1/chat/completions", body, headers={"x-message-id": value})
    assert response.status_code == 400
    assert error_of(response)["param"] == "x-message-id"


def test_a_server_that_keeps_nothing_says_so(model: Path) -> None:
    with servers.running(lambda: servers.load_engine(model)) as it:
        servers.wait_until_loaded(it)
        body = {"messages": [HELLO], "max_tokens": 2}
        response = it.post("/v1/chat/completions", body, headers=HEADERS)
        assert response.status_code == 200
        assert response.headers["x-ignored-params"] == "x-message-id"
