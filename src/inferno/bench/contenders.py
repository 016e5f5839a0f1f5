"""The engines that a benchmark runs: this one, and llama.cpp in a process of its own.

Each clears its cache, then takes ids; no sampling and no text is in the seconds. Engines that are
servers are in `servers`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from inferno.errors import DownloadFailed, InvalidOption
from inferno.hub import cache_folder

if TYPE_CHECKING:
    from inferno.engine import Engine

LLAMA_CPP_PACKAGE = "llama-cpp-python"


@dataclass(frozen=True)
class Prompt:
    """What the contenders of a run are given: a text, if one of them wants it, and its ids here."""

    ids: Sequence[int]
    text: str = ""


class Timing(NamedTuple):
    """Tokens that were processed, as the contender counts them, and the seconds it took."""

    tokens: int
    seconds: float


class Contender(Protocol):
    """An engine with a model loaded."""

    name: str
    version: str
    clock: str  # who takes the time, for the reader of the figures
    vocab_size: int | None  # None: it takes text

    def prefill(self, prompt: Prompt) -> Timing:
        """Process `prompt` from an empty cache to the last token's logits."""
        ...

    def decode(self, prompt: Prompt, ids: Sequence[int]) -> Timing:
        """Process `prompt` at once, then as many tokens as `ids` one by one; time the latter.

        Which tokens they are makes no difference to the work: an engine that cannot be told takes
        those it chooses, greedily.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class Inferno:
    """This engine, in this process."""

    clock = "timed in its process"

    def __init__(self, engine: Engine) -> None:
        import inferno

        self.engine = engine
        engine.prefix_cache.capacity = 0  # every run computes all of its prompt
        self.name = f"inferno {engine.isa}"
        self.version = inferno.__version__
        self.vocab_size: int | None = engine.config.vocab_size

    def prefill(self, prompt: Prompt) -> Timing:
        session = self.engine.new_session()
        began = time.perf_counter()
        session.feed(prompt.ids)
        return Timing(len(prompt.ids), time.perf_counter() - began)

    def decode(self, prompt: Prompt, ids: Sequence[int]) -> Timing:
        session = self.engine.new_session()
        session.feed(prompt.ids)
        began = time.perf_counter()
        for token in ids:
            session.feed([token])
        return Timing(len(ids), time.perf_counter() - began)

    def close(self) -> None:
        """Leave the engine to its owner."""


class LlamaCpp:
    """llama.cpp as llama-cpp-python builds it, in a Python of its own."""

    clock = "timed in its process"

    def __init__(self, python: Path, model: Path, *, threads: int, context: int) -> None:
        script = Path(__file__).with_name("llama_cpp_peer.py")
        self._process = subprocess.Popen(
            [str(python), str(script), str(model), str(threads), str(context)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        hello = self._answer()
        self.name = str(hello["name"])
        self.version = f"{LLAMA_CPP_PACKAGE} {hello['version']}"
        self.vocab_size: int | None = int(hello["vocab_size"])

    def prefill(self, prompt: Prompt) -> Timing:
        return Timing(len(prompt.ids), self._ask({"prefill": list(prompt.ids)}))

    def decode(self, prompt: Prompt, ids: Sequence[int]) -> Timing:
        request = {"prefill": list(prompt.ids), "decode": list(ids)}
        return Timing(len(ids), self._ask(request))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, request: dict[str, list[int]]) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._process.stderr.read().strip().splitlines()[-1:] or ["no message"]
            raise InvalidOption(
                f"`--against llama.cpp`: expected it to run, found that it ended: {last[0]}",
                hint="does llama.cpp know this file? try `--against-python` with another build",
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


def llama_cpp_python() -> Path:
    """Return the Python of an environment that has llama-cpp-python, making it the first time.

    It is built from source for this very CPU, which takes some minutes.

    Raises:
        DownloadFailed: pip could not install it.
    """
    home = cache_folder() / "peers" / LLAMA_CPP_PACKAGE
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    finished = home / "finished"
    if finished.exists():
        return python
    print(f"building {LLAMA_CPP_PACKAGE} for the comparison (once, some minutes)", file=sys.stderr)
    venv.create(home, with_pip=True, clear=True)
    result = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", LLAMA_CPP_PACKAGE],
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-1:] or ["no message"]
        raise DownloadFailed(
            f"`{LLAMA_CPP_PACKAGE}` could not be installed: {last[0]}",
            hint="install it in an environment of your own and pass its Python as --against-python",
        )
    finished.touch()
    return python
