"""The engines that a benchmark runs: this one, and others in processes of their own.

Each clears its cache, then takes ids; no sampling and no text is in the seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from inferno.errors import DownloadFailed, InvalidOption
from inferno.hub import cache_folder

if TYPE_CHECKING:
    from inferno.engine import Engine

LLAMA_CPP_PACKAGE = "llama-cpp-python"


class Contender(Protocol):
    """An engine with a model loaded."""

    name: str
    vocab_size: int

    def prefill(self, ids: Sequence[int]) -> float:
        """Process `ids` from an empty cache to the last one's logits; return the seconds."""
        ...

    def decode(self, context: Sequence[int], ids: Sequence[int]) -> float:
        """Process `context` at once, then `ids` one by one; return the seconds of the latter."""
        ...


class Inferno:
    """This engine, in this process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = f"inferno {engine.isa}"
        self.vocab_size = engine.config.vocab_size

    def prefill(self, ids: Sequence[int]) -> float:
        session = self.engine.new_session()
        began = time.perf_counter()
        session.feed(ids)
        return time.perf_counter() - began

    def decode(self, context: Sequence[int], ids: Sequence[int]) -> float:
        session = self.engine.new_session()
        session.feed(context)
        began = time.perf_counter()
        for token in ids:
            session.feed([token])
        return time.perf_counter() - began


class LlamaCpp:
    """llama.cpp as llama-cpp-python builds it, in a Python of its own."""

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
        self.vocab_size = int(hello["vocab_size"])

    def prefill(self, ids: Sequence[int]) -> float:
        return self._ask({"prefill": list(ids)})

    def decode(self, context: Sequence[int], ids: Sequence[int]) -> float:
        return self._ask({"prefill": list(context), "decode": list(ids)})

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
