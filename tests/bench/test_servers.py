"""Servers as contenders, against one in a thread that plays Ollama, llama.cpp or a plain one.

It keeps what it was asked, and answers times that no clock took.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from inferno import InvalidOption
from inferno.bench import servers
from inferno.bench.contenders import Contender, Prompt

PROMPT = Prompt([1, 2, 3, 4, 5], "c0ffee the of and")


class FakeServer(ThreadingHTTPServer):
    """`kind` is ollama, llama.cpp or plain; `requests` are (path, body) as they came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.kind = "plain"
        self.strict = False  # refuse fields that OpenAI does not have
        self.stops_after = 10_000  # tokens
        self.raw: bytes | None = None  # an answer to everything
        self.requests: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: object) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        known: dict[str, object] = {}
        if self.server.kind == "ollama":
            names = [{"name": "smol:latest"}, {"name": "smol:q8"}, {"odd": 1}]
            known = {"/api/version": {"version": "0.9"}, "/api/tags": {"models": names}}
        elif self.server.kind == "llama.cpp":
            entry = {"id": "/models/smol.gguf", "owned_by": "llamacpp"}
            known = {"/v1/models": {"data": [entry]}}
        else:
            known = {"/v1/models": {"data": [{"id": "a"}, {"id": "b", "owned_by": "vllm"}]}}
        if self.server.raw is not None:
            self.answer(200, self.server.raw)
        elif self.path in known:
            self.answer(200, known[self.path])
        else:
            self.answer(404, b"<html>not here</html>")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, body))
        if self.server.raw is not None:
            self.answer(200, self.server.raw)
        elif self.path == "/api/generate" and self.server.kind == "ollama":
            made = min(body["options"]["num_predict"], self.server.stops_after)
            self.answer(200, {
                "response": "x", "prompt_eval_count": 6, "prompt_eval_duration": 3_000_000_000,
                "eval_count": made, "eval_duration": 500_000_000,
            })  # fmt: skip
        elif self.server.strict and "cache_prompt" in body:
            self.answer(400, {"error": {"message": "unknown field cache_prompt"}})
        else:
            self.stream(min(body["max_tokens"], self.server.stops_after))

    def stream(self, tokens: int) -> None:
        events: list[dict[str, Any]] = [{"choices": [{"text": "x"}]} for _ in range(tokens)]
        if self.server.kind == "llama.cpp":
            timings = {"prompt_n": 6, "prompt_ms": 2000.0}
            timings |= {"predicted_n": tokens, "predicted_ms": 250.0, "cache_n": 0}
            events.append({"choices": [{"text": ""}], "timings": timings})
        usage = {"prompt_tokens": 7, "completion_tokens": tokens}
        events.append({"choices": [], "usage": usage})
        self.send_response(200)
        self.end_headers()
        for event in events:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b": a comment\n\ndata: [DONE]\n\n")


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def connect(fake: FakeServer, model: str | None = None) -> Contender:
    return servers.contender(fake.url, model, threads=2, context=512)


def test_ollama_is_known_by_its_version_and_times_itself(fake: FakeServer) -> None:
    fake.kind = "ollama"
    ollama = connect(fake, "smol")
    assert (ollama.name, ollama.version) == ("ollama smol", "Ollama 0.9")
    assert "prompt_eval_duration" in ollama.clock
    assert ollama.prefill(PROMPT) == (6, 3.0)
    # Four tokens after the prompt are five in all: the first comes out of the prompt itself.
    assert ollama.decode(PROMPT, [9] * 4) == (4, 0.5)
    path, body = fake.requests[-1]
    assert path == "/api/generate"
    assert (body["model"], body["prompt"]) == ("smol:latest", PROMPT.text)
    assert body["raw"] is True
    assert body["options"] == {
        "num_ctx": 512, "num_thread": 2, "num_gpu": 0, "temperature": 0, "num_predict": 5,
    }  # fmt: skip


def test_ollama_is_found_where_its_own_variable_says(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.kind = "ollama"
    for host in (
        fake.url,
        fake.url.removeprefix("http://"),
        fake.url.replace("127.0.0.1", "0.0.0.0"),
    ):
        monkeypatch.setenv("OLLAMA_HOST", host)
        ollama = servers.contender("ollama", "smol:q8", threads=1, context=64)
        assert ollama.name == "ollama smol:q8"
    assert servers._ollama_url("box") == "http://box:11434"


@pytest.mark.parametrize("model", [None, "other"])
def test_a_model_that_ollama_does_not_have_is_an_error_that_lists_those(
    fake: FakeServer, model: str | None
) -> None:
    fake.kind = "ollama"
    with pytest.raises(InvalidOption, match="'smol:latest', 'smol:q8'") as error:
        connect(fake, model)
    assert "ollama create" in str(error.value.hint)


def test_llama_cpp_is_told_to_keep_nothing_and_times_itself(fake: FakeServer) -> None:
    fake.kind = "llama.cpp"
    server = connect(fake)
    assert server.name == "server smol.gguf"
    assert "llamacpp" in server.version and "timed by itself" in server.clock
    assert server.prefill(PROMPT) == (6, 2.0)
    assert server.decode(PROMPT, [9] * 4) == (4, 0.25)
    path, body = fake.requests[-1]
    assert path == "/v1/completions"
    assert (body["prompt"], body["max_tokens"], body["temperature"]) == (PROMPT.text, 5, 0)
    assert (body["cache_prompt"], body["ignore_eos"]) == (False, True)


def test_other_servers_are_timed_from_outside(fake: FakeServer) -> None:
    server = connect(fake, "b")
    assert server.name == "server b"
    assert server.clock == "time to first token, over HTTP"
    tokens, seconds = server.prefill(PROMPT)
    assert tokens == 7 and 0 < seconds < 60
    tokens, seconds = server.decode(PROMPT, [9] * 40)
    assert tokens == 40 and 0 < seconds < 60


def test_a_server_that_refuses_our_switches_is_asked_without(fake: FakeServer) -> None:
    fake.strict = True
    server = connect(fake, "a")
    assert "no switch for its cache" in server.clock
    server.prefill(PROMPT)
    assert not {"cache_prompt", "ignore_eos"} & fake.requests[-1][1].keys()


def test_of_several_models_one_must_be_named(fake: FakeServer) -> None:
    with pytest.raises(InvalidOption, match=r"found no name \(it has: 'a', 'b'\)"):
        connect(fake)


def test_a_url_may_end_in_v1(fake: FakeServer) -> None:
    assert servers.contender(fake.url + "/v1/", "a", threads=1, context=8).name == "server a"


@pytest.mark.parametrize("kind", ["ollama", "llama.cpp", "plain"])
def test_a_model_that_stops_at_once_is_an_error(fake: FakeServer, kind: str) -> None:
    fake.kind = kind
    server = connect(fake, {"ollama": "smol", "plain": "a"}.get(kind))
    fake.stops_after = 1
    with pytest.raises(InvalidOption, match="expected tokens and their time"):
        server.decode(PROMPT, [9] * 4)


@pytest.mark.parametrize("flag", ["ollama", "http://127.0.0.1:9"])
def test_a_server_that_is_not_there_is_an_error_with_a_hint(
    flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")  # the port of "discard", which nobody runs
    with pytest.raises(InvalidOption, match=r"no answer from http://127\.0\.0\.1:9") as error:
        servers.contender(flag, "smol", threads=1, context=8)
    assert "start" in str(error.value.hint)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "vllm"])
def test_what_is_no_url_is_an_error(url: str) -> None:
    with pytest.raises(InvalidOption, match="a URL"):
        servers.contender(url, None, threads=1, context=8)


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"data": 5, "models": {}}']
)
def test_a_server_that_talks_nonsense_is_an_error(fake: FakeServer, raw: bytes) -> None:
    fake.raw = raw
    with pytest.raises(InvalidOption, match="--against"):
        connect(fake)


def test_an_answer_without_end_is_cut_off(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.kind = "llama.cpp"
    server = connect(fake)
    monkeypatch.setattr(servers, "ANSWER_BYTES", 100)
    with pytest.raises(InvalidOption, match="more than"):
        server.prefill(PROMPT)
