"""Load a server with mixed requests, a third of which hang up somewhere, and look for mistakes.

    python benchmarks/load.py [MODEL] [--minutes 10] [--clients 8]

Every greedy answer must be, byte for byte, what the same request gave alone before the load; no
request may fail; and the memory of the server must stay flat. Prints figures as one JSON object.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

GREEDY_REQUESTS = 32
LONGEST = 300  # words of a prompt
SENTENCE = "the river was old and nobody knew where it began but all could say what it was for"
WORDS = SENTENCE.split()
SYSTEMS = [0, 40, 120, 120]  # words of the system prompts that conversations share
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
FLAT = 0.02
SAMPLE_SECONDS = 2

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
EMBEDDING, COMPOSE = "/v1/embeddings", "/v1/compose"


class Requests:
    """Makes requests of every kind, by chance."""

    def __init__(self, has_tools: bool) -> None:
        self._kinds = ["chat", "chat", "chat", "choices", "raw", "schema", "regex", "vectors"]
        self._kinds += ["tool"] if has_tools else []
        first = random.Random(0)
        self._systems = [self._words(first, count) for count in SYSTEMS]

    def make(self, choices: random.Random, **fields: Any) -> tuple[str, dict[str, Any]]:
        """Return a path and a body."""
        kind = choices.choice(self._kinds)
        text = self._words(choices, choices.randrange(1, LONGEST))
        if kind == "vectors":
            return EMBEDDING, {"input": [text, self._words(choices, 5)]}
        fields |= {"max_tokens": choices.randrange(1, 48)}
        if kind == "raw":
            return COMPLETION, {"prompt": text, "ignore_eos": True, **fields}
        system = choices.choice(self._systems)
        messages = [{"role": "system", "content": system}] if system else []
        for _ in range(choices.choice((0, 0, 1, 2))):  # earlier turns
            messages.append({"role": "user", "content": self._words(choices, 20)})
            messages.append({"role": "assistant", "content": self._words(choices, 40)})
        body = {"messages": [*messages, {"role": "user", "content": text}], **fields}
        if kind == "choices":
            body["n"] = 3
        if kind == "schema":
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
            }
        if kind == "regex":
            body["regex"] = "(yes|no), because [a-z ]{5,30}[.]"
        if kind == "tool":
            body |= {"tools": [TOOL], "tool_choice": "required"}
        return CHAT, body

    def draft(self, choices: random.Random) -> tuple[str, dict[str, Any]]:
        text = self._words(choices, choices.randrange(1, LONGEST))
        return COMPOSE, {"messages": [{"role": "user", "content": text}]}

    @staticmethod
    def _words(choices: random.Random, count: int) -> str:
        return " ".join(choices.choice(WORDS) for _ in range(count))


def said_in(answer: Any, said: dict[int, list[str]]) -> None:
    """Collect what an answer, or a chunk of one, says in each of its choices."""
    for entry in answer.get("data", ()):
        said.setdefault(entry["index"], []).append(json.dumps(entry["embedding"]))
    for choice in answer.get("choices", ()):
        texts = said.setdefault(choice["index"], [])
        message = choice.get("message") or choice.get("delta") or {}
        texts.append(choice.get("text") or message.get("content") or "")
        for call in message.get("tool_calls") or ():
            texts += [call["function"].get("name") or "", call["function"]["arguments"]]


class Load:
    """The requests, and what came of them."""

    def __init__(self, address: tuple[str, int], seconds: float, has_tools: bool) -> None:
        self.address = address
        self.counts = {"completed": 0, "cancelled": 0, "busy": 0, "drafts": 0, "compared": 0}
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._requests = Requests(has_tools)
        choices = random.Random(1)
        self.greedy = [self._requests.make(choices, temperature=0) for _ in range(GREEDY_REQUESTS)]
        self.expected = self.ask_greedy()
        self.ends = time.monotonic() + seconds

    def ask_greedy(self) -> list[list[str] | None]:
        """Ask one after the other, each alone."""
        return [self.ask(path, body) for path, body in self.greedy]

    def ask(self, path: str, body: dict[str, Any]) -> list[str] | None:
        """Return the texts of an answer, None if the server is busy."""
        connection = http.client.HTTPConnection(*self.address, timeout=1800)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        if response.status == 429 and int(response.headers["retry-after"]) >= 1:
            return None
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {data[:300]!r}")
        said: dict[int, list[str]] = {}
        if body.get("stream"):
            events = [json.loads(e[6:]) for e in data.decode().split("\n\n") if e[:7] == "data: {"]
            if any("error" in e for e in events) or b"[DONE]" not in data:
                raise RuntimeError(f"in a stream: {events[-1:]}")
            for event in events:
                said_in(event, said)
        else:
            said_in(json.loads(data), said)
        return ["".join(said[index]) for index in sorted(said)]

    def give_up(self, path: str, body: dict[str, Any], after: float) -> None:
        """Send a request and hang up after so many seconds."""
        connection = http.client.HTTPConnection(*self.address, timeout=1800)
        connection.request("POST", path, json.dumps(body))
        time.sleep(after)
        connection.close()

    def client(self, seed: int) -> None:
        choices = random.Random(seed)
        while time.monotonic() < self.ends:
            try:
                what = self._one(choices)
            except Exception as error:
                with self._lock:
                    self.failures.append(f"{type(error).__name__}: {error}")
            else:
                with self._lock:
                    self.counts[what] += 1

    def _one(self, choices: random.Random) -> str:
        kind = choices.random()
        more: dict[str, Any] = {"stream": True} if choices.random() < 0.5 else {}
        if kind < 1 / 3:
            path, body = self._requests.make(choices)
            self.give_up(path, {**body, **more}, choices.expovariate(2))
            return "cancelled"
        if kind < 0.43:
            return "busy" if self.ask(*self._requests.draft(choices)) is None else "drafts"
        if kind < 0.8:
            index = choices.randrange(GREEDY_REQUESTS)
            path, body = self.greedy[index]
            found = self.ask(path, {**body, **more} if path != EMBEDDING else body)
            if found is not None and found != self.expected[index]:
                raise RuntimeError(f"{body}: {found!r}, alone {self.expected[index]!r}")
            return "busy" if found is None else "compared"
        if choices.random() < 0.3:
            more["priority"] = "background"
        path, body = self._requests.make(choices)
        found = self.ask(path, {**body, **more} if path != EMBEDDING else body)
        return "busy" if found is None else "completed"


def resident_bytes(process: int) -> int:
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    command = [
        *(sys.executable, "-m", "inferno", "serve", options.model, "--port", "0", "--quiet"),
        *("--context", "2048", "--cache-memory", "0.1", "--parallel", "6", "--queue", "4"),
        *("--conversations", "off"),
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    host, port = server.stdout.readline().strip().removeprefix("http://").split(":")
    address = (host, int(port))
    shown = fetched(address, "/api/show", {"model": "x"})
    load = Load(address, 60 * options.minutes, "tools" in shown["capabilities"])
    threads = [threading.Thread(target=load.client, args=(n,)) for n in range(options.clients)]
    memory: list[int] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(SAMPLE_SECONDS)
        memory.append(resident_bytes(server.pid))
        if len(memory) % (60 // SAMPLE_SECONDS) == 0:
            print(f"{memory[-1] / 1e6:.1f} MB, {load.counts}", file=sys.stderr, flush=True)
    same = load.ask_greedy() == load.expected
    metrics = fetched(address, "/metrics")
    server.terminate()
    code = server.wait()
    third = len(memory) // 3
    early, late = (statistics.median(part) for part in (memory[third : 2 * third], memory[-third:]))
    minutes = [
        round(statistics.median(memory[start : start + 60 // SAMPLE_SECONDS]) / 1e6, 1)
        for start in range(0, len(memory), 60 // SAMPLE_SECONDS)
    ]
    print(json.dumps({
        **load.counts, "failures": len(load.failures), "first_failures": load.failures[:5],
        "resident_mb": minutes, "growth": late / early - 1, "same_after": same,
        "exit_code": code, "metrics": metrics,
    }))  # fmt: skip
    sys.exit(bool(load.failures or code) or late / early - 1 > FLAT or not same)


def fetched(address: tuple[str, int], path: str, body: Any = None) -> Any:
    """Return what stands at `path`: JSON, or our gauges and counters of `/metrics`."""
    connection = http.client.HTTPConnection(*address, timeout=600)
    connection.request("GET" if body is None else "POST", path, body and json.dumps(body))
    data = connection.getresponse().read().decode()
    connection.close()
    if body is not None:
        return json.loads(data)
    pairs = [line.split(" ") for line in data.splitlines() if line.startswith("inferno_")]
    return {name: float(value) for name, value in pairs}


if __name__ == "__main__":
    main()
