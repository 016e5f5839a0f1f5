"""Engines that are servers: Ollama by its own interface, others by OpenAI's completions.

They take text. Every prompt is new from its first character on, what they keep of prompts is
switched off where there is a switch, and they choose tokens greedily. llama.cpp and Ollama time
themselves; with others it is the time to the first token, and from there to the last.

The first token comes out of the prompt's last logits, so n tokens are n - 1 passes after the
prompt; llama.cpp and Ollama, too, start their clocks of generation when they have the first.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from inferno.bench.contenders import Contender, Prompt, Timing
from inferno.errors import InvalidOption
from inferno.excerpt import shown

OLLAMA_PORT = 11434
TIMEOUT_SECONDS = 600.0  # a prompt of thousands of tokens, on a slow machine
ANSWER_BYTES = 16 << 20  # no answer needs more: a token is some hundred bytes of JSON


class Server:
    """One address that answers JSON."""

    def __init__(self, flag: str, url: str, *, hint: str) -> None:
        self.flag, self._hint = flag, hint
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise InvalidOption(
                f"`--against`: expected llama.cpp, ollama or a URL, found {shown(flag)}",
                hint="a URL is like http://127.0.0.1:8080",
            )
        secure = parts.scheme == "https"
        self._connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port = parts.hostname, port
        # Both http://host and http://host/v1 are common ways to name a server.
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self.where = f"{parts.scheme}://{parts.netloc}{self._base}"

    def has(self, path: str, key: str) -> bool:
        """Tell whether `path` answers an object with `key`; raises if nobody answers at all."""
        try:
            return key in self.ask(path)
        except _Strange:
            return False

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the object that answers; GET without a body."""
        connection, _ = self._send(path, body)
        try:
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(error) from error
        finally:
            connection.close()
        if response.status != 200:
            raise Refused(self.flag, response.status, data)
        return self._object(data)

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield the events of an answer, each with the seconds since the request was sent."""
        connection, began = self._send(path, body)
        try:
            response = connection.getresponse()
            if response.status != 200:
                raise Refused(self.flag, response.status, response.read(ANSWER_BYTES))
            left = ANSWER_BYTES
            while line := response.readline(left):
                arrived = time.perf_counter() - began
                left -= len(line)
                if left <= 0:
                    raise self._strange(f"more than {ANSWER_BYTES >> 20} MB")
                name, _, value = line.partition(b":")
                if name.strip() == b"data" and value.strip() != b"[DONE]":
                    yield arrived, self._object(value)
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(error) from error
        finally:
            connection.close()

    def _send(
        self, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, float]:
        connection = self._connect(self._host, self._port, timeout=TIMEOUT_SECONDS)
        headers = {"Content-Type": "application/json"}
        try:
            connection.connect()  # not a part of the time
            began = time.perf_counter()
            connection.request(
                "GET" if body is None else "POST",
                self._base + path,
                None if body is None else json.dumps(body).encode(),
                headers,
            )
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._gone(error) from error
        return connection, began

    def _object(self, data: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._strange(shown(data[:80]))
        return answer

    def _strange(self, found: str) -> _Strange:
        return _Strange(
            f"`--against {self.flag}`: expected JSON from {self.where}, found {found}",
            hint="is it a server of language models?",
        )

    def _gone(self, error: Exception) -> InvalidOption:
        reason = str(error) or type(error).__name__
        return InvalidOption(
            f"`--against {self.flag}`: no answer from {self.where}: {reason}", hint=self._hint
        )


class _Strange(InvalidOption):
    """The server does not speak as expected."""


class Refused(_Strange):
    """The server answered that it will not."""

    def __init__(self, flag: str, status: int, data: bytes) -> None:
        # {"error": "…"} of Ollama, {"error": {"message": "…"}} of OpenAI, or a page of HTML.
        words: Any = data[:80]
        try:
            words = json.loads(data)["error"]
            words = words["message"] if isinstance(words, dict) else words
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        super().__init__(
            f"`--against {flag}`: the server refused with status {status}: {shown(words)}"
        )
        self.status = status


class Ollama:
    """A model that Ollama has, on the CPU, by `/api/generate`."""

    clock = "timed by itself (prompt_eval_duration, eval_duration)"
    vocab_size: int | None = None

    def __init__(self, server: Server, model: str | None, *, threads: int, context: int) -> None:
        self._server = server
        self.version = f"Ollama {server.ask('/api/version').get('version')}"
        names = _names(server.ask("/api/tags").get("models"), "name")
        known = {name: name for name in names}
        known |= {name.removesuffix(":latest"): name for name in names}
        if model not in known:
            found = ", ".join(map(shown, names)) or "none"
            raise InvalidOption(
                f"`--against-model`: expected a model that {server.where} has, "
                f"found {'no name' if model is None else shown(model)} (it has: {found})",
                hint="`ollama create NAME -f Modelfile`, with FROM and the file in the Modelfile",
            )
        self.name = f"ollama {model}"
        self._model = known[model]
        # num_gpu is layers on a GPU. Ollama has no switch for what it keeps of prompts.
        self._options = {
            "num_ctx": context, "num_thread": threads, "num_gpu": 0, "temperature": 0,
        }  # fmt: skip

    def prefill(self, prompt: Prompt) -> Timing:
        answer = self._generate(prompt, 1)
        return self._timing(answer, "prompt_eval_count", "prompt_eval_duration")

    def decode(self, prompt: Prompt, ids: Sequence[int]) -> Timing:
        answer = self._generate(prompt, len(ids) + 1)
        return self._timing(answer, "eval_count", "eval_duration", first=1)

    def close(self) -> None:
        """Leave the server as it is."""

    def _generate(self, prompt: Prompt, tokens: int) -> dict[str, Any]:
        return self._server.ask("/api/generate", {
            "model": self._model, "prompt": prompt.text, "raw": True, "stream": False,
            "options": {**self._options, "num_predict": tokens},
        })  # fmt: skip

    def _timing(
        self, answer: dict[str, Any], count: str, nanoseconds: str, first: int = 0
    ) -> Timing:
        return _checked(
            self._server,
            f"{count}, {nanoseconds}",
            _number(answer.get(count)) - first,
            _number(answer.get(nanoseconds)) / 1e9,
        )


class Completions:
    """A server with OpenAI's `/v1/completions`: llama.cpp's, vLLM, …"""

    vocab_size: int | None = None

    # What OpenAI's interface does not have. cache_prompt: llama.cpp's switch for kept prompts.
    EXTRAS = {"cache_prompt": False, "ignore_eos": True}  # noqa: RUF012

    def __init__(self, server: Server, model: str | None) -> None:
        self._server = server
        listed = server.ask("/v1/models").get("data")
        names = _names(listed, "id")
        if model is None and len(names) == 1:
            model = names[0]
        if model not in names:
            found = ", ".join(map(shown, names)) or "none"
            raise InvalidOption(
                f"`--against-model`: expected a model that {server.where} has, "
                f"found {'no name' if model is None else shown(model)} (it has: {found})"
            )
        assert isinstance(listed, list)
        maker = shown(next(m.get("owned_by") for m in listed if m["id"] == model))
        self._model = model
        self.name = f"server {model.replace(chr(92), '/').rsplit('/', 1)[-1]}"
        self.version = f"{server.where} ({maker})"
        self._extras = dict(self.EXTRAS)
        hello = Prompt((), "hello")
        try:
            timings = self._complete(hello, 2).timings
        except Refused as refused:
            if refused.status not in (400, 422):
                raise
            self._extras = {}  # it takes OpenAI's fields and no others
            timings = self._complete(hello, 2).timings
        self.clock = "timed by itself (timings)" if timings else "time to first token, over HTTP"
        if not self._extras:
            self.clock += "; no switch for its cache"

    def prefill(self, prompt: Prompt) -> Timing:
        reply = self._complete(prompt, 1)
        if reply.timings:
            return reply.timing("prompt_n", "prompt_ms")
        tokens = _number(reply.usage.get("prompt_tokens")) or len(prompt.ids)
        return _checked(self._server, "time to first token", tokens, reply.first)

    def decode(self, prompt: Prompt, ids: Sequence[int]) -> Timing:
        reply = self._complete(prompt, len(ids) + 1)
        if reply.timings:
            return reply.timing("predicted_n", "predicted_ms", first=1)
        tokens = _number(reply.usage.get("completion_tokens")) or reply.events
        return _checked(
            self._server, "tokens after the first", tokens - 1, reply.last - reply.first
        )

    def close(self) -> None:
        """Leave the server as it is."""

    def _complete(self, prompt: Prompt, tokens: int) -> _Reply:
        reply = _Reply(self._server)
        request = {
            "model": self._model, "prompt": prompt.text, "max_tokens": tokens, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}, **self._extras,
        }  # fmt: skip
        for arrived, event in self._server.stream("/v1/completions", request):
            reply.add(arrived, event)
        return reply


class _Reply:
    """What the events of a completion said, and when."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.events = 0  # with a token, or several
        self.first = self.last = 0.0
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}

    def add(self, arrived: float, event: dict[str, Any]) -> None:
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict) and choice.get("text"):
            self.events += 1
            self.first = self.first or arrived
            self.last = arrived
        # The last that has them counts: some servers send them with every token.
        for name in ("usage", "timings"):
            if isinstance(event.get(name), dict):
                setattr(self, name, event[name])

    def timing(self, count: str, milliseconds: str, first: int = 0) -> Timing:
        return _checked(
            self._server,
            f"{count}, {milliseconds}",
            _number(self.timings.get(count)) - first,
            _number(self.timings.get(milliseconds)) / 1e3,
        )


def contender(flag: str, model: str | None, *, threads: int, context: int) -> Contender:
    """Return the engine that `--against FLAG` names: `ollama`, or the URL of a server."""
    if flag == "ollama":
        host = os.environ.get("OLLAMA_HOST") or f"127.0.0.1:{OLLAMA_PORT}"
        server = Server(flag, _ollama_url(host), hint="start it with `ollama serve`")
        return Ollama(server, model, threads=threads, context=context)
    server = Server(flag, flag, hint="start the server first; `--against ollama` finds Ollama's")
    if server.has("/api/version", "version"):
        return Ollama(server, model, threads=threads, context=context)
    return Completions(server, model)


def _ollama_url(host: str) -> str:
    """Read OLLAMA_HOST as Ollama does: scheme and port may be missing, 0.0.0.0 is this machine."""
    url = host
    if "://" not in host:
        has_port = re.search(r":\d+$", host)
        url = f"http://{host}" if has_port else f"http://{host}:{OLLAMA_PORT}"
    return url.replace("//0.0.0.0", "//127.0.0.1", 1)


def _names(entries: Any, key: str) -> list[str]:
    if not isinstance(entries, list):
        return []
    found = [entry.get(key) for entry in entries if isinstance(entry, dict)]
    return [name for name in found if isinstance(name, str)]


def _number(value: Any) -> int | float:
    """Return a number that JSON had; 0 for anything else."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _checked(server: Server, what: str, tokens: int | float, seconds: float) -> Timing:
    if tokens < 1 or not 0 < seconds < TIMEOUT_SECONDS:
        raise InvalidOption(
            f"`--against {server.flag}`: expected tokens and their time ({what}), "
            f"found {tokens:g} in {seconds:g} s",
            hint="did the model stop at once? another model, or a larger --generate, may not",
        )
    return Timing(int(tokens), seconds)
