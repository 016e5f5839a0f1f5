"""Loading an engine for a command: a bar if it takes long, and a line that says what it is."""

from __future__ import annotations

import argparse
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from inferno.cli.flags import engine_options
from inferno.cli.style import counted, dim, format_bytes, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from inferno import Engine

PATIENCE_SECONDS = 0.5  # a bar that flashes by is noise
COUNTED = {"calibrating": "tokens", "evaluating": "tokens"}  # other steps count bytes


def load(arguments: argparse.Namespace) -> Engine:
    """Load `arguments.model` with the engine flags that were given."""
    import inferno

    with LoadProgress() as progress:
        return inferno.Engine.load(arguments.model, progress=progress, **engine_options(arguments))


def print_load_line(engine: Engine) -> None:
    """Say on stderr what was loaded."""
    print(dim(load_line(engine), sys.stderr), file=sys.stderr, flush=True)


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
        self._bar: Progress | None = None
        self._task: TaskID | None = None
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
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._started < PATIENCE_SECONDS:
            return
        unit = COUNTED.get(what, "bytes")
        if sys.stderr.isatty():
            self._draw(what, done, total)
        elif what != self._what and what != "loading":  # a line for scripts where it takes minutes
            count = f"{total:,} {unit}" if unit != "bytes" else format_bytes(total)
            size = f" ({count})" if total else ""
            print(f"{what}{size}", file=sys.stderr, flush=True)
        self._what = what

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._bar is not None and what != self._what:
            if (what in COUNTED) != (self._what in COUNTED):
                self._bar.stop()
                self._bar = None
            elif self._task is not None:
                self._bar.remove_task(self._task)
            self._task = None
        if self._bar is None:
            self._bar = _bar(COUNTED.get(what, "bytes"))
            self._bar.start()
        if self._task is None:
            self._task = self._bar.add_task(what, total=None)
        self._bar.update(self._task, completed=done, total=total or None)


def _bar(unit: str) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),)
    if unit == "bytes":
        counts = (DownloadColumn(), TransferSpeedColumn())
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *counts,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
