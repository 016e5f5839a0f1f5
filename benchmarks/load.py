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

GREEDY_PROMPTS = 24
LONGEST = 300  # words of a prompt
SENTENCE = "the river was old and nobody knew where it began but all could say what it was for"
WORDS = SENTENCE.split()
FLAT = 0.02


class Load:
    """The requests, and what came of them."""

    def __init__(self, address: tuple[str, int], seconds: float) -> None:
        self.address = address
        self.ends = time.monotonic() + seconds
        self.counts = {"completed": 0, "cancelled": 0, "busy": 0, "drafts": 0, "compared": 0}
        self.failures: list[str] = []
        self._lock = threading.Lock()
        choices = random.Random(1)
        self.greedy = [self._body(choices, temperature=0) for _ in range(GREEDY_PROMPTS)]
        self.expected = [self.ask(body) for body in self.greedy]

    def _body(self, choices: random.Random, **fields: Any) -> dict[str, Any]:
        system = " ".join(choices.choice(WORDS) for _ in range(choices.choice((0, 40, 120))))
        words = " ".join(choices.choice(WORDS) for _ in range(choices.randrange(1, LONGEST)))
        messages = [{"role": "system", "content": system}] if system else []
        return {
            "messages": [*messages, {"role": "user", "content": words}],
            "max_tokens": choices.randrange(1, 48), "ignore_eos": True, **fields,
        }  # fmt: skip

    def ask(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> str | None:
        """Return the text of an answer, None if the server is busy."""
        connection = http.client.HTTPConnection(*self.address, timeout=600)
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
        if body.get("stream"):
            events = [json.loads(e[6:]) for e in data.decode().split("\n\n") if e[:7] == "data: {"]
            if any("error" in e for e in events):
                raise RuntimeError(f"in a stream: {events[-1]}")
            texts = [c["delta"].get("content") for e in events for c in e["choices"]]
            return "".join(text for text in texts if text)
        answer = json.loads(data)
        return str(answer["choices"][0]["message"]["content"]) if "choices" in answer else ""

    def give_up(self, body: dict[str, Any], after: float) -> None:
        """Send a request and hang up after so many seconds."""
        connection = http.client.HTTPConnection(*self.address, timeout=600)
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}))
        time.sleep(after)
        connection.close()

    def client(self, seed: int) -> None:
        choices = random.Random(seed)
        while time.monotonic() < self.ends:
            try:
                self._one(choices)
            except Exception as error:
                with self._lock:
                    self.failures.append(f"{type(error).__name__}: {error}")

    def _one(self, choices: random.Random) -> None:
        kind, what = choices.random(), "completed"
        if kind < 1 / 3:
            self.give_up(self._body(choices), choices.expovariate(2))
            what = "cancelled"
        elif kind < 0.43:
            text = self.ask(self._body(choices), "/v1/compose")
            what = "busy" if text is None else "drafts"
        elif kind < 0.75:
            index = choices.randrange(GREEDY_PROMPTS)
            text = self.ask({**self.greedy[index], "stream": choices.random() < 0.5})
            what = "busy" if text is None else "compared"
            if text is not None and text != self.expected[index]:
                raise RuntimeError(f"another text: {text!r}, alone {self.expected[index]!r}")
        else:
            more = {"n": choices.choice((1, 1, 3)), "stream": choices.random() < 0.5}
            if choices.random() < 0.3:
                more["priority"] = "background"
            what = "busy" if self.ask(self._body(choices, **more)) is None else "completed"
        with self._lock:
            self.counts[what] += 1


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
        *("--conversations", "none"),
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    host, port = server.stdout.readline().strip().removeprefix("http://").split(":")
    load = Load((host, int(port)), 60 * options.minutes)
    threads = [threading.Thread(target=load.client, args=(n,)) for n in range(options.clients)]
    memory: list[int] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(2)
        memory.append(resident_bytes(server.pid))
    again = [load.ask(body) for body in load.greedy]
    server.terminate()
    code = server.wait()
    third = len(memory) // 3
    early, late = (statistics.median(part) for part in (memory[third : 2 * third], memory[-third:]))
    print(json.dumps({
        **load.counts, "failures": len(load.failures), "first_failures": load.failures[:5],
        "resident_mb": [round(early / 1e6, 1), round(late / 1e6, 1)],
        "growth": late / early - 1, "same_after": again == load.expected, "exit_code": code,
    }))  # fmt: skip
    sys.exit(bool(load.failures) or late / early - 1 > FLAT or again != load.expected)


if __name__ == "__main__":
    main()
