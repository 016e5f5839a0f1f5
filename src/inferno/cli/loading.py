"""Loading an engine for a command: a bar if it takes long, and a line that says what it is."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from inferno.cli.flags import engine_options
from inferno.cli.style import counted, dim, format_bytes, printable

if TYPE_CHECKING:
    from tqdm import tqdm

    from inferno import Engine

PATIENCE_SECONDS = 0.5  # a bar that flashes by is noise
COUNTED = {"calibrating": "tokens", "evaluating": "tokens"}  # other steps count bytes


def load(arguments: argparse.Namespace) -> Engine:
    """Load `arguments.model` with the engine flags that were given."""
    import inferno

    with LoadProgress() as progress, warnings.catch_warnings():
        # That plain C++ runs is said below, as commands say things; other warnings are shown.
        warnings.filterwarnings("ignore", "This CPU has none", RuntimeWarning)
        return inferno.Engine.load(arguments.model, progress=progress, **engine_options(arguments))


def print_load_line(engine: Engine) -> None:
    """Say on stderr what was loaded, and if it will be slow."""
    print(dim(load_line(engine), sys.stderr), file=sys.stderr, flush=True)
    if engine.isa == "scalar":
        from inferno.selftest import isas

        names, _ = isas()
        print(slowness(names[0]), file=sys.stderr, flush=True)


def slowness(best: str) -> str:
    """Return a warning that plain C++ runs, where `best` could, and a hint."""
    if best == "scalar":
        why = "this CPU has no vector instructions that inferno knows"
        hint = "a smaller model helps; `inferno doctor` describes the machine"
    else:
        why = f"this CPU has {best}"
        hint = "leave out --isa and INFERNO_ISA to use the best"
    return f"warning: instruction set `scalar`: many times slower than others; {why}\nhint: {hint}"


def load_line(engine: Engine) -> str:
    """Return the model, its formats, the context, what runs it, its memory and its load time."""
    memory = engine.memory
    cache = f"{format_bytes(memory.kv_cache_per_token)}/token"
    if engine.kv_cache != "f16":
        cache += f" ({engine.kv_cache})"
    return " · ".join(
        (
            printable(engine.config.name).replace("\n", " "),
            engine.config.model_type,
            " + ".join(engine.weight_formats),
            f"{engine.context} context",
            engine.isa,
            counted(engine.threads, "thread"),
            f"{format_bytes(memory.weights)} + {cache}",
            f"{engine.load_seconds:.1f} s",
        )
    )


class LoadProgress:
    """A progress callback: a bar on a terminal, elsewhere a line for each step."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bar: tqdm[Any] | None = None
        self._what: str | None = None

    def __enter__(self) -> LoadProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._started < PATIENCE_SECONDS:
            return
        unit = COUNTED.get(what, "bytes")
        if sys.stderr.isatty():
            self._draw(what, done, total)
        elif what != self._what and what != "loading":  # a line for scripts where it takes minutes
            count = f"{total:,} {unit}" if unit != "bytes" else format_bytes(total)
            size = f" ({count})" if total else ""
            print(f"{printable(what)}{size}", file=sys.stderr, flush=True)
        self._what = what

    def _draw(self, what: str, done: int, total: int) -> None:
        from tqdm import tqdm

        if self._bar is None or what != self._what:
            if self._bar is not None:
                self._bar.close()
            tqdm.monitor_interval = 0  # no thread that sees to bars which stand still
            self._bar = tqdm(
                desc=printable(what),
                unit=COUNTED.get(what, "B"),
                unit_scale=True,
                dynamic_ncols=True,
                leave=False,
                file=sys.stderr,
            )
        self._bar.total = total or None
        self._bar.update(done - self._bar.n)
