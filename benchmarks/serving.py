"""What a server takes and gives: time to the first token, streams together, and its own overhead.

    python benchmarks/serving.py [MODEL] [--only typing,system,resend,streams,stall,overhead]

Starts `inferno serve` in a process of its own and is its only client, over loopback. Every prompt
is new from its beginning on, but where a measurement says otherwise. Figures that are compared
come from turns of one run; the decode step is measured beside each.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from inferno import Engine

PROMPT_TOKENS, NEW_TOKENS, STREAMS = 64, 64, 8
LONG_REPLY = 256  # tokens
DRAFT_TOKENS, SYSTEM_TOKENS, LONG_TOKENS = 400, 500, 1500
CHARACTERS_PER_SECOND = 6
CACHE_GIGABYTES = 0.15  # of a server: small, so that it soon is as one that has long been running
LAST_CHARACTERS = 20  # typed in real time; what comes before, as fast as it is read


class Answer:
    """A request under way: when each event came, in seconds since it was sent."""

    def __init__(self, address: tuple[str, int], path: str, body: Any, session: str = "") -> None:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
        head += f"Connection: close\r\nContent-Length: {len(data)}\r\n"
        head += f"x-session-id: {session}\r\n\r\n" if session else "\r\n"
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began = time.perf_counter()
        self.socket.sendall(head.encode() + data)
        self._received = b""
        self.first: float | None = None  # piece of text
        self.longest = 0.0  # without anything new, after the first
        self.last = 0.0
        self.is_over = False

    def receive(self) -> None:
        """Take what is there, waiting for something."""
        data = self.socket.recv(1 << 16)
        now = time.perf_counter() - self.began
        self._received += data
        if self.first is not None:
            self.longest = max(self.longest, now - self.last)
        elif b'"content":"' in self._received:
            self.first = now
        if data:
            self.last = now
        else:
            self.is_over = True
            self.socket.close()

    def finish(self) -> Answer:
        while not self.is_over:
            self.receive()
        return self

    @property
    def body(self) -> Any:
        head, _, body = self._received.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise SystemExit(self._received.decode())
        return json.loads(body)

    @property
    def events(self) -> list[Any]:
        parts = self._received.split(b"data: ")[1:]
        return [json.loads(p.split(b"\n\n")[0]) for p in parts if not p.startswith(b"[DONE]")]

    @property
    def timings(self) -> dict[str, float]:
        return dict(self.events[-1]["timings"])


def finish_together(answers: Sequence[Answer]) -> None:
    """Read several answers as they come."""
    with selectors.DefaultSelector() as ready:
        for answer in answers:
            ready.register(answer.socket, selectors.EVENT_READ, answer)
        while ready.get_map():
            for key, _ in ready.select():
                answer = key.data
                answer.receive()
                if answer.is_over:
                    ready.unregister(answer.socket)


class Bench:
    """One server and one engine in this process, and the measurements."""

    def __init__(self, model: str, threads: int, context: int, runs: int) -> None:
        self.runs = runs
        self.peer: tuple[str, int] | None = None
        self._random = random.Random(7)
        command = [
            *(sys.executable, "-m", "inferno", "serve", model, "--port", "0", "--quiet"),
            *("--threads", str(threads), "--context", str(context)),
            *("--cache-memory", str(CACHE_GIGABYTES)),
        ]
        self._server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        host, port = self._server.stdout.readline().strip().removeprefix("http://").split(":")
        self.address = (host, int(port))
        self.engine = Engine.load(model, threads=threads, context=context)
        self.engine.prefix_cache.capacity = 0
        self._words = whole_words(self.engine)
        # What the template adds counts as prompt.
        added = len(self.engine.encode_chat([{"role": "user", "content": ""}]))
        self._text_tokens = PROMPT_TOKENS - added
        for _ in range(12):  # until its memory is full
            self.chat(self.words(LONG_TOKENS // 2), tokens=1).finish()

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()

    def words(self, tokens: int) -> str:
        """Return new text of about so many tokens."""
        return "".join(self._random.choice(self._words) for _ in range(tokens)).lstrip()

    def chat(
        self, text: str, system: str | None = None, session: str = "", tokens: int = 8
    ) -> Answer:
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": text})
        body = {
            "messages": messages,
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
            "speculation": "off",
        }
        return Answer(self.address, "/v1/chat/completions", body, session)

    def step(self) -> float:
        """Return the seconds of a decode step at a depth of about 400 tokens, by the server."""
        timings = self.chat(self.words(DRAFT_TOKENS), tokens=33).finish().timings
        return timings["predicted_ms"] / 32 / 1e3  # the first comes of the prompt's last logits

    # ---- measurements ----------------------------------------------------------------------------

    def typing(self) -> dict[str, Any]:
        """From Enter to the first piece, of a draft that was read while typed, and one that was
        not."""
        with_it, without, steps = [], [], []
        for run in range(self.runs):
            steps.append(self.step())
            cold = self.chat(self.words(DRAFT_TOKENS)).finish()
            text = self.words(DRAFT_TOKENS) + "?"
            self._type(text, f"session-{run}")
            warm = self.chat(text, session=f"session-{run}").finish()
            without.append(cold.first)
            with_it.append(warm.first)
        return latency("draft of 400 tokens", with_it, without, steps)

    def _type(self, text: str, session: str) -> None:
        for end in range(160, len(text) - LAST_CHARACTERS, 160):
            self._compose(text[:end], session).finish()
        drafts = []
        for end in range(len(text) - LAST_CHARACTERS, len(text) + 1):
            drafts.append(self._compose(text[:end], session))
            threading.Thread(target=drafts[-1].finish).start()
            time.sleep(1 / CHARACTERS_PER_SECOND)

    def _compose(self, text: str, session: str) -> Answer:
        body = {"messages": [{"role": "user", "content": text}]}
        return Answer(self.address, "/v1/compose", body, session)

    def system(self) -> dict[str, Any]:
        """The first piece of a new conversation behind a system prompt that was read before."""
        with_it, without, steps = [], [], []
        for _ in range(self.runs):
            steps.append(self.step())
            system = self.words(SYSTEM_TOKENS)
            without.append(self.chat("What is it about?", system).finish().first)
            with_it.append(self.chat("Who said that?", system).finish().first)
        return latency("system prompt of 500 tokens", with_it, without, steps)

    def resend(self) -> dict[str, Any]:
        """A prompt that its client gave up halfway, and sent again."""
        text = self.words(LONG_TOKENS)
        whole = self.chat(self.words(LONG_TOKENS)).finish()
        assert whole.first is not None
        given_up = self.chat(text)
        time.sleep(whole.first / 2)
        given_up.socket.close()
        again = self.chat(text).finish()
        timings = again.timings
        return {
            "whole_ms": 1e3 * whole.first,
            "again_ms": 1e3 * (again.first or 0.0),
            "cached_tokens": timings["cache_n"],
            "processed_tokens": timings["prompt_n"],
        }

    def streams(self) -> dict[str, Any]:
        """Tokens a second of one stream, and of eight together; prompts share nothing.

        A server to compare with takes its turns at the same texts.
        """
        ours: list[tuple[float, float, float]] = []
        theirs: list[tuple[float, float, float]] = []
        for _ in range(self.runs):
            texts = [self.words(self._text_tokens) for _ in range(1 + STREAMS)]
            ours.append(self._rates(texts))
            if self.peer is not None:
                mine, self.address = self.address, self.peer
                theirs.append(self._rates(texts))
                self.address = mine
        alone, together, fairness = zip(*ours, strict=True)
        found = {
            "one": statistics.median(alone),
            "eight": statistics.median(together),
            "times": statistics.median(t / a for a, t, _ in ours),
            "slowest_of_fastest": statistics.median(fairness),
        }
        if theirs:
            found["peer_one"] = statistics.median(alone for alone, _, _ in theirs)
            found["peer_eight"] = statistics.median(together for _, together, _ in theirs)
            pairs = zip(ours, theirs, strict=True)
            found["times_peer"] = statistics.median(a[1] / b[1] for a, b in pairs)
        return found

    def _rates(self, texts: Sequence[str]) -> tuple[float, float, float]:
        """Return tokens a second of one stream, of eight, and what part of the fastest's rate the
        slowest of these had."""
        one = self.chat(texts[0], tokens=NEW_TOKENS).finish()
        many = [self.chat(text, tokens=NEW_TOKENS) for text in texts[1:]]
        finish_together(many)
        together = max(answer.began + answer.last for answer in many) - many[0].began
        lasts = [answer.last for answer in many]
        rate = STREAMS * NEW_TOKENS / together
        return NEW_TOKENS / one.last, rate, min(lasts) / max(lasts)

    def stall(self) -> dict[str, Any]:
        """The longest time that a stream stands still while texts become vectors, or are scored."""
        alone, vectors, scores = [], [], []
        for _ in range(self.runs):
            text = self.words(self._text_tokens)
            alone.append(self.chat(text, tokens=LONG_REPLY).finish().longest)
            body: Any = {"input": [self.words(tokens) for tokens in (600, 30, 30, 200)]}
            vectors.append(self._beside(Answer(self.address, "/v1/embeddings", body)))
            body = {"prompt": self.words(600), "max_tokens": 0, "echo": True, "logprobs": 0}
            scores.append(self._beside(Answer(self.address, "/v1/completions", body)))
        return {
            "alone_ms": 1e3 * max(alone),
            "vectors_ms": 1e3 * max(vectors),
            "scores_ms": 1e3 * max(scores),
        }

    def _beside(self, other: Answer) -> float:
        stream = self.chat(self.words(self._text_tokens), tokens=LONG_REPLY)
        finish_together([stream, other])
        return stream.longest

    def overhead(self) -> dict[str, Any]:
        """One stream over HTTP, and the same from Python, in pairs; who is first takes turns."""
        pairs = []
        for pair in range(5 * self.runs):
            text = self.words(self._text_tokens)
            ways = [self._served, self._from_python]
            rates = [way(text) for way in (ways if pair % 2 else ways[::-1])]
            pairs.append(rates if pair % 2 else rates[::-1])
        quartiles = statistics.quantiles((1 - served / python for served, python in pairs), n=4)
        return {
            "served": statistics.median(served for served, _ in pairs),
            "python": statistics.median(python for _, python in pairs),
            "overhead": quartiles[1],
            "quarter_below": quartiles[0],
            "quarter_above": quartiles[2],
        }

    def _served(self, text: str) -> float:
        answer = self.chat(text, tokens=LONG_REPLY).finish()
        assert answer.first is not None
        return (LONG_REPLY - 1) / (answer.last - answer.first)

    def _from_python(self, text: str) -> float:
        began = first = 0.0
        options = {"max_tokens": LONG_REPLY, "temperature": 0, "ignore_eos": True}
        for _ in self.engine.chat(text, speculation="off", **options):
            began, first = time.perf_counter(), first or time.perf_counter()
        return (LONG_REPLY - 1) / (began - first)


def whole_words(engine: Engine) -> list[str]:
    """Return words, each with a space before it, that are one token of the vocabulary."""
    encode, decode = engine.tokenizer.encode, engine.tokenizer.decode
    before = encode("a")[-1]
    texts = {id: decode([id], previous=before) for id in range(engine.num_tokens)}
    is_word = re.compile(" [a-z]{2,6}").fullmatch
    words = [text for id, text in texts.items() if is_word(text) and encode("a" + text)[1:] == [id]]
    assert len(words) > 100, "the vocabulary has too few words"
    return words


def latency(
    what: str, warm: Sequence[float | None], cold: Sequence[float | None], steps: Sequence[float]
) -> dict[str, Any]:
    def median(values: Sequence[float | None]) -> float:
        return statistics.median(value or 0.0 for value in values)

    step, first = statistics.median(steps), median(warm)
    return {
        "of": what,
        "cold_ms": 1e3 * median(cold),
        "ms": 1e3 * first,
        "worst_ms": 1e3 * max(value or 0.0 for value in warm),
        "times": median(cold) / first,
        "step_ms": 1e3 * step,
        "steps": first / step,
    }


MEASUREMENTS = ("typing", "system", "resend", "streams", "stall", "overhead")


def lines_of(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, found in results.items():
        figures = ", ".join(
            f"{key} {value if isinstance(value, str) else format(value, '.4g')}"
            for key, value in found.items()
        )
        yield f"{name:10} {figures}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="some, with commas between")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", metavar="HOST:PORT", help="a server for `streams` to compare")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    peer = options.against and options.against.rsplit(":", 1)
    bench = Bench(options.model, options.threads, options.context, options.runs)
    bench.peer = peer and (peer[0], int(peer[1]))
    try:
        results = {name: getattr(bench, name)() for name in options.only.split(",")}
    finally:
        bench.close()
    print(json.dumps(results) if options.json else "\n".join(lines_of(results)))


if __name__ == "__main__":
    main()
