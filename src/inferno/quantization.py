"""A model to a GGUF file in smaller weights: the one room that both runs a model and writes one.

What a calibration text does to the inputs of a model's matrices says which columns matter.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from inferno import _native, hub
from inferno.conversion import DEFAULT_QUANTIZER, check_quantizer, write_checkpoint
from inferno.engine import Engine
from inferno.errors import InvalidOption, InvalidText
from inferno.excerpt import shown
from inferno.graph import Floats
from inferno.loading import Progress
from inferno.recipes import check_type
from inferno.weights import open_checkpoint

MIN_CALIBRATION_TOKENS = 64  # columns that so few tokens do not touch would seem not to matter
_WINDOW = 512


def quantize(
    model: str | os.PathLike[str],
    path: str | os.PathLike[str],
    type: str,
    *,
    calibration: str | None = None,
    quantizer: str = DEFAULT_QUANTIZER,
    threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Write `model` (as in `Engine.load`) to the GGUF file `path`, its weights as `type`.

    Args:
        type: "q4_0", "q4_k_m", … as `weights` in `Engine.load`.
        calibration: a text of the kind that the model will see; it weighs the errors of columns
            by how large their inputs are. Not the text that the result is judged by.
        quantizer: "least_squares", "reference" (ggml's rule), or "naive", for comparison.
        progress: called with ("loading", "calibrating" or "quantizing", done, all), in bytes but
            for "calibrating", which is tokens.

    Raises:
        InvalidOption: a type or quantizer that does not exist, or a `path` that does.
        InvalidText: the calibration text has fewer than 64 tokens.
        UnsupportedModel: GGUF has no words for something about the model.
        OSError: the disk refuses.
        and what `Engine.load` raises.
    """
    check_type("type", type)
    check_quantizer(quantizer)
    source, target = hub.resolve(model, progress=progress or _silent), Path(path)
    if target.exists() and source.exists() and os.path.samefile(source, target):
        raise InvalidOption(f"Output {shown(str(target))}: expected another file than the model")
    if os.path.lexists(target):
        raise InvalidOption(
            f"Output {shown(str(target))}: expected a new file, found one that exists",
            hint="choose another name, or delete it first",
        )
    if not target.parent.is_dir():
        raise InvalidOption(
            f"Output {shown(str(target))}: expected a folder that exists, found none",
            hint=f"make it first: mkdir -p {target.parent}",
        )
    importance: Mapping[str, Floats] = {}
    if calibration is not None:
        engine = Engine.load(source, threads=threads, progress=progress)
        importance = importance_of(engine, calibration, progress=progress)
        del engine  # its weights need not stay while the file is written
    with open_checkpoint(source) as checkpoint:
        write_checkpoint(
            checkpoint,
            target,
            type,
            threads=threads,
            progress=progress,
            quantizer=quantizer,
            importance=importance,
        )


def importance_of(
    engine: Engine, text: str, *, progress: Progress | None = None
) -> dict[str, Floats]:
    """Return how much each column of each float matrix matters: its name → (columns,) f32.

    That is the mean square of what the column is multiplied by: if inputs are uncorrelated, the
    mean square error of an output is the sum of importance times squared weight error.

    Raises:
        InvalidText: the text is too short.
    """
    ids = engine.tokenizer.encode(text)
    if len(ids) < MIN_CALIBRATION_TOKENS:
        raise InvalidText(
            f"The calibration text: expected at least {MIN_CALIBRATION_TOKENS} tokens, "
            f"found {len(ids)}",
            hint="some thousand words of the kind that the model will see are good",
        )
    bos = engine.tokenizer.bos_id if engine.tokenizer.adds_bos else None
    prefix = [] if bos is None else [bos]
    size = max(1, min(_WINDOW, engine.context) - len(prefix))
    executor = engine._executor
    executor.calibrating = True
    try:
        for start in range(0, len(ids), size):
            window = np.array([*prefix, *ids[start : start + size]], dtype=np.int32)
            # The states before the head are inputs of a matrix too, so the head is run.
            executor.forward([(_native.KvCache(engine._loaded.pages), window, "all")])
            if progress is not None:
                progress("calibrating", min(start + size, len(ids)), len(ids))
        importance: dict[str, Floats] = {}
        for number, matrix in enumerate(engine._loaded.program.matrices):
            squares = executor.mean_squares(number)
            if not len(squares) or not squares.any():
                continue
            for part in matrix.parts:
                importance[f"{part.parameter.name}.weight"] = np.asarray(
                    squares / squares.mean(), dtype=np.float32
                )
        return importance
    finally:
        executor.calibrating = False


def _silent(what: str, done: int, total: int) -> None:
    pass
