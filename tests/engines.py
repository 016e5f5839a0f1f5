"""Engines over tiny GGUF checkpoints, made without torch, and ways to watch and feed them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import checkpoints
from inferno import Engine, hub
from inferno.catalogue import CATALOGUE, DEFAULT_MODEL
from inferno.speculation import PassCosts

Floats = npt.NDArray[np.float32]


def tiny_gguf(
    path: Path, model_type: str = "llama", *, format: str = "f32", seed: int = 0, **options: Any
) -> Path:
    """Write a random model; `options` are those of `checkpoints.tiny_config`.

    Rows are whole blocks of `format`, unless `hidden` is given.
    """
    if "hidden" not in options:
        options = {**checkpoints.sizes_for(format), **options}
    config = checkpoints.tiny_config(model_type, **options)
    return checkpoints.gguf_llama(
        path, config, checkpoints.random_tensors(config, seed), format=format
    )


class FixedCosts(PassCosts):
    """Costs that do not depend on how busy the machine is: those assumed before any is measured."""

    def observe(self, rows: int, seconds: float) -> None:
        pass


def load(path: Path, *, threads: int = 1, **options: Any) -> Engine:
    """Load an engine of one thread, unless threads are the question; it measures no time.

    It keeps no prefixes, so that what is computed twice is computed twice.
    """
    engine = Engine.load(path, threads=threads, **options)
    engine.prefix_cache.capacity = 0
    engine._pass_costs = FixedCosts()
    return engine


def random_ids(count: int, vocab_size: int = checkpoints.VOCAB_SIZE, seed: int = 0) -> list[int]:
    """Draw ids from the whole vocabulary."""
    return [int(i) for i in np.random.default_rng(seed).integers(0, vocab_size, count)]


def logits_in_steps(engine: Engine, ids: Sequence[int], step: int) -> Floats:
    """Compute the logits of every position through a session fed `step` ids at a time."""
    session, rows = engine.new_session(), []
    for start in range(0, len(ids), step):
        session.feed(ids[start : start + step])
        rows.append(session.logits())
    return np.stack(rows)


class WatchedExecutor:
    """Stands for an engine's executor and calls `before(n)` before the nth forward pass, from 0."""

    def __init__(self, engine: Engine, before: Callable[[int], None]) -> None:
        self._executor = engine._executor
        self._before = before
        self.passes = 0

    def forward(self, batch: Any) -> None:
        self.passes += 1
        self._before(self.passes - 1)
        return self._executor.forward(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


@contextlib.contextmanager
def watched(engine: Engine, before: Callable[[int], None]) -> Iterator[WatchedExecutor]:
    """Watch the forward passes of `engine` for a while. Samplers cannot be made meanwhile."""
    executor = engine._executor
    watch = WatchedExecutor(engine, before)
    engine._executor = watch  # type: ignore[assignment]
    try:
        yield watch
    finally:
        engine._executor = executor


def default_model() -> Path:
    """Return the default model's file, or skip: nothing is downloaded."""
    entry = CATALOGUE[DEFAULT_MODEL]
    if not (hub.cache_folder() / "models" / entry.file).is_file():
        pytest.skip("the default model is not in the cache; `make chat` fetches it")
    no_download = [sys.executable, "-c", "raise SystemExit(1)"]
    return hub.resolve(DEFAULT_MODEL, pip=no_download)
