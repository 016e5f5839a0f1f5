"""The `inferno` command with an engine that parrots: `python fake_inferno.py chat …`.

The last word of a message chooses what the reply does; see `FakeGeneration._pieces`.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

from inferno.errors import ContextFull, TemplateError


class FakeGeneration:
    def __init__(self, text, session):
        self.text = ""
        self.finish_reason = None
        self.is_cancelled = False
        self.stats = SimpleNamespace(
            prompt_tokens=12,
            cached_tokens=2,
            generated_tokens=3,
            prefill_seconds=0.1,
            decode_seconds=0.2,
            drafted=0,
            accepted=0,
        )
        self._request = text
        self._session = session

    def cancel(self):
        self.is_cancelled = True

    def __iter__(self):
        for piece in self._pieces(self._request.split()[-1] if self._request.split() else ""):
            if self.is_cancelled:
                break
            self.text += piece
            self._session.length += 1
            yield piece
        self.finish_reason = self.finish_reason or "stop"

    def _pieces(self, wish):
        if wish == "endless":
            for number in itertools.count():
                yield f"{number} "
                time.sleep(0.001)  # a pace that a terminal emulator can follow
        elif wish == "interrupted":
            yield "half "
            signal.raise_signal(signal.SIGINT)
            yield "never seen"
        elif wish == "silence":
            pass
        elif wish == "overflow":
            yield "so far"
            raise ContextFull("Context is full: 64 of 64 tokens used, 1 more needed")
        elif wish == "escape":
            yield "a\x1b[2Jb"
        elif wish == "long":
            yield "cut"
            self.finish_reason = "length"
        elif wish == "bug":
            raise ZeroDivisionError("division by zero")
        else:
            yield "You said: "
            yield self._request


class FakeSession:
    def __init__(self):
        self.length = 0

    def __len__(self):
        return self.length


class FakeEngine:
    weight_formats = ("q4_1", "q8_0")
    kv_cache = "f16"
    context = 8192
    isa = "avx2"
    threads = 2
    load_seconds = 0.42
    config = SimpleNamespace(name="Parrot-1M", model_type="llama")
    memory = SimpleNamespace(weights=98_362_432, kv_cache_per_token=30_000, scratch=1_000_000)
    loads: ClassVar[list] = []
    calls: ClassVar[list] = []

    @classmethod
    def load(cls, model, *, progress=None, **options):
        cls.loads.append((model, options))
        if os.path.basename(str(model)) == "missing":
            from inferno import hub

            hub.resolve(model)
        return cls()

    def new_session(self):
        return FakeSession()

    def chat(self, messages, params=None, *, session=None, **overrides):
        self.calls.append(("chat", list(messages), session, overrides))
        request = messages[-1]["content"]
        if request.endswith("too-long"):
            raise ContextFull(
                "Context is full: 64 tokens, 100 needed", hint="load with context=100"
            )
        if request.endswith("refused"):
            raise TemplateError("The chat template refused the messages: roles must alternate")
        return FakeGeneration(request, FakeSession() if session is None else session)

    def encode_chat(self, messages, **options):
        return [1] * len(messages[-1]["content"])

    def generate(self, prompt, params=None, **overrides):
        if overrides.get("max_tokens") == 0:  # a draft that is read ahead
            return FakeGeneration("", FakeSession())
        self.calls.append(("generate", prompt, None, overrides))
        return FakeGeneration(prompt, FakeSession())


if __name__ == "__main__":
    import inferno
    from inferno.cli import main

    inferno.Engine = FakeEngine
    sys.exit(main())
