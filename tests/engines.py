"""Engines over tiny GGUF checkpoints, made without torch. Knows what a test would repeat, no claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import checkpoints
from inferno import Engine

Floats = npt.NDArray[np.float32]


def tiny_gguf(
    path: Path, model_type: str = "llama", *, format: str = "f32", seed: int = 0, **options: Any
) -> Path:
    """Write a random model; `options` are those of `checkpoints.tiny_config`."""
    config = checkpoints.tiny_config(model_type, **options)
    return checkpoints.gguf_llama(
        path, config, checkpoints.random_tensors(config, seed), format=format
    )


def load(path: Path, *, threads: int = 1, **options: Any) -> Engine:
    """Load an engine of one thread, unless threads are the question."""
    return Engine.load(path, threads=threads, **options)


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
