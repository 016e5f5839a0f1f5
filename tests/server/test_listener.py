"""A server from its first moment to its last: ports, keys, loading, the queue, the end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import json
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import engines
import servers
from inferno import Engine, InvalidOption, ModelNotFound
from inferno.server.guard import Access
from inferno.server.listener import (
    JsonLogFormat,
    LogFormat,
    bind,
    check_exposure,
    is_loopback,
    log_to_stderr,
)
from inferno.server.service import Settings
from servers import error_of


def test_a_taken_port_is_an_error_that_says_so() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidOption, match=f"port {port}") as caught:
            bind("127.0.0.1", port)
        assert "--port" in str(caught.value.hint)


def test_on_windows_nobody_can_take_the_port_away(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[tuple[int, int, int]] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", -5, raising=False)  # ~SO_REUSEADDR, there
    monkeypatch.setattr("socket.socket.setsockopt", lambda self, *set: options.append(set))
    bind("127.0.0.1", 0).close()
    assert options == [(socket.SOL_SOCKET, -5, 1)]


@pytest.mark.parametrize(("host", "port"), [("256.1.1.1", 0), ("no.such.host.invalid", 0)])
def test_a_host_that_is_not_ours_is_an_error(host: str, port: int) -> None:
    with pytest.raises(InvalidOption, match="--host"):
        bind(host, port)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EADDRNOTAVAIL, "0.0.0.0"), (errno.EACCES, "below 1024"), (errno.ENOBUFS, "--port")],
)
def test_an_address_that_is_not_to_be_had_has_a_remedy_of_its_own(
    number: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*address: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("socket.socket.bind", refuse)
    with pytest.raises(InvalidOption, match="cannot listen") as caught:
        bind("127.0.0.1", 80)
    assert remedy in str(caught.value.hint)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("box.local", False)],
)  # fmt: skip
def test_other_machines_need_a_key(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    check_exposure(host, Access(keys=["long-enough"]))
    if expected:
        check_exposure(host, Access())
    else:
        with pytest.raises(InvalidOption, match="without a key"):
            check_exposure(host, Access())


@pytest.mark.parametrize("key", ["short", "ключ-и-замок", "with\nnewline"])
def test_a_weak_or_unsendable_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidOption, match="API keys"):
        check_exposure("127.0.0.1", Access(keys=[key]))


def test_while_the_model_is_loaded_the_answer_is_503_and_come_again(model: Path) -> None:
    gate = threading.Event()

    def load() -> Engine:
        assert gate.wait(60)
        return servers.load_engine(model)

    with servers.running(load) as it:
        for response in (it.client.get("/health"), it.client.get("/v1/models"), it.chat()):
            assert response.status_code == 503
            assert error_of(response)["type"] == "unavailable_error"
            assert int(response.headers["retry-after"]) >= 1
        gate.set()
        servers.wait_until_loaded(it)
        assert it.client.get("/health").json() == {"status": "ok"}


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_error(tmp_path: Path) -> None:
    def fail() -> Engine:
        return Engine.load(tmp_path / "missing.gguf")

    with pytest.raises(ModelNotFound), servers.running(fail) as it:
        servers.wait_until_loaded(it)


def test_a_full_queue_is_a_429_that_says_when(model: Path) -> None:
    settings = Settings(max_streams=1, max_waiting=1, grace_seconds=1)
    with servers.running(lambda: servers.load_engine(model), settings) as it:
        servers.wait_until_loaded(it)
        gate, entered, forward = threading.Event(), threading.Event(), it.engine._forward

        def watched(batch: Any) -> Any:
            entered.set()
            assert gate.wait(60)
            return forward(batch)

        it.engine._forward = watched  # type: ignore[method-assign]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first = pool.submit(it.chat, "a")
            assert entered.wait(60)
            second = pool.submit(it.chat, "b")
            while not it.service.scheduler.num_waiting:
                entered.wait(0.01)
            refused = it.chat("c")
            streamed = it.chat("d", stream=True)
            gate.set()
            assert first.result().status_code == second.result().status_code == 200
        for response in (refused, streamed):
            assert response.status_code == 429
            assert error_of(response)["type"] == "rate_limit_error"
            assert int(response.headers["retry-after"]) >= 1
        assert it.chat("e").status_code == 200


def test_a_burst_takes_nothing_from_streams_and_who_is_too_many_comes_again(
    model: Path, alone: Engine
) -> None:
    settings = Settings(max_streams=4, max_waiting=6, grace_seconds=1)
    names = [f"Number {n}" for n in range(22)]
    expected = {name: alone.chat(name, temperature=0, max_tokens=8).text for name in names}

    def content(response: httpx.Response) -> str:
        if "event-stream" not in response.headers["content-type"]:
            return str(response.json()["choices"][0]["message"]["content"])
        chunks = servers.events_of(response)[:-1]
        return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)

    with servers.running(lambda: servers.load_engine(model), settings) as it:
        servers.wait_until_loaded(it)

        def ask(name: str) -> None:
            answer = it.chat(name, stream=name in names[:2])
            while answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                answer = it.chat(name)
            assert content(answer) == expected[name]

        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            for asked in [pool.submit(ask, name) for name in names]:
                asked.result()


def test_a_window_that_is_full_ends_the_text_and_the_next_is_answered(tmp_path: Path) -> None:
    small = engines.tiny_gguf(tmp_path / "small.gguf", context=64)
    with servers.running(lambda: servers.load_engine(small)) as it:
        servers.wait_until_loaded(it)
        expected = engines.load(small).chat("Hello", temperature=0, ignore_eos=True).text
        for _ in range(2):
            body = it.chat(max_tokens=1000, ignore_eos=True).json()
            [choice] = body["choices"]
            assert (choice["message"]["content"], choice["finish_reason"]) == (expected, "length")
            assert body["usage"]["total_tokens"] == 64


def test_strict_refuses_what_would_be_ignored(model: Path) -> None:
    settings = Settings(strict=True, grace_seconds=1)
    with servers.running(lambda: servers.load_engine(model), settings) as it:
        servers.wait_until_loaded(it)
        assert it.chat().status_code == 200
        assert it.chat(model=it.service.model).status_code == 200
        unknown = it.chat(frobnicate=1)
        assert (unknown.status_code, error_of(unknown)["param"]) == (400, "frobnicate")
        assert error_of(unknown)["code"] == "unsupported_parameter"
        assert it.chat(user="me").status_code == 400
        other = it.chat(model="gpt-5")
        assert (other.status_code, error_of(other)["code"]) == (404, "model_not_found")


def test_ending_the_server_ends_a_stream_that_would_not_end(model: Path) -> None:
    settings = Settings(grace_seconds=1)
    with servers.running(lambda: servers.load_engine(model), settings) as it:
        servers.wait_until_loaded(it)
        forward, slow = it.engine._forward, threading.Event()

        def watched(batch: Any) -> Any:
            slow.wait(0.02)
            return forward(batch)

        it.engine._forward = watched  # type: ignore[method-assign]
        body = {"messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True}
        with it.client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as r:
            lines = r.iter_lines()
            next(lines)
            it.server.stop()
            try:
                for _ in lines:
                    pass
            except httpx.HTTPError:
                pass  # cut off: there was no time for an end


def record(**fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("inferno.server", logging.INFO, "", 0, "request", None, None)
    made.fields = fields
    return made


def test_a_line_of_the_log_cannot_be_forged() -> None:
    line = LogFormat().format(record(path="/a\n12:00:00 request status=200", status=404))
    assert "\n" not in line
    assert line.endswith("status=404")
    parsed = json.loads(JsonLogFormat().format(record(path="/a\nb", status=404)))
    assert (parsed["path"], parsed["status"], parsed["level"]) == ("/a\nb", 404, "info")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the server writes to its log meanwhile; it hands on nothing to other loggers."""
    logger = logging.getLogger("inferno.server")
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    yield caplog
    logger.removeHandler(caplog.handler)


def test_the_log_has_a_line_for_a_request_and_nothing_of_the_prompt(
    server: servers.Running, logged: pytest.LogCaptureFixture
) -> None:
    response = server.chat("my secret", max_tokens=1)
    [line, *_] = [r for r in logged.records if r.fields["id"] == response.headers["x-request-id"]]
    assert (line.fields["path"], line.fields["status"]) == ("/v1/chat/completions", 200)
    assert "secret" not in str(line.fields)


def test_files_of_the_page_are_in_the_log_only_if_they_are_missing(
    server: servers.Running, logged: pytest.LogCaptureFixture
) -> None:
    assert server.client.get("/").status_code == 200
    assert server.client.get("/assets/none.js").status_code == 404
    paths = [r.fields["path"] for r in logged.records]
    assert "/assets/none.js" in paths and "/" not in paths


def test_the_log_has_what_was_asked_only_if_that_is_wanted(
    model: Path, logged: pytest.LogCaptureFixture
) -> None:
    settings = Settings(logs_prompts=True, grace_seconds=1)
    with servers.running(lambda: servers.load_engine(model), settings) as it:
        servers.wait_until_loaded(it)
        id = it.chat("my secret\nof two lines", max_tokens=1).headers["x-request-id"]
    mine = [r for r in logged.records if r.fields["id"] == id]
    asked = next(r for r in mine if r.getMessage() == "asked")
    done = next(r for r in mine if r.getMessage() == "request")
    assert asked.fields["body"]["messages"][0]["content"] == "my secret\nof two lines"
    assert "\n" not in LogFormat().format(asked)
    assert "secret" in JsonLogFormat().format(asked)
    assert "secret" not in LogFormat().format(done)


def test_a_request_keeps_the_id_that_it_brings(server: servers.Running) -> None:
    for given, kept in (("abc-1.2", True), ("a b", False), ("x" * 100, False)):
        found = server.client.get("/health", headers={"x-request-id": given})
        assert (found.headers["x-request-id"] == given) is kept


def test_what_is_nowhere_is_a_404_and_a_wrong_method_a_405(server: servers.Running) -> None:
    response = server.client.get("/v1/nothing")
    assert (response.status_code, error_of(response)["type"]) == (404, "not_found_error")
    response = server.client.get("/v1/chat/completions")
    assert response.status_code == 405
    error_of(response)
    assert server.client.get("/openapi.json").status_code == 200


def test_a_reply_that_is_cut_off_by_the_end_leaves_no_trace_and_a_mistake_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("inferno.server", "uvicorn"):
        logger = logging.getLogger(name)
        for attribute in ("handlers", "propagate", "level"):
            monkeypatch.setattr(logger, attribute, getattr(logger, attribute))
    log_to_stderr(as_json=False)
    for error in (asyncio.CancelledError("cut off"), ValueError("a mistake")):
        logging.getLogger("uvicorn.error").error("Exception", exc_info=error)
    said = capsys.readouterr().err
    assert "a mistake" in said and "cut off" not in said
