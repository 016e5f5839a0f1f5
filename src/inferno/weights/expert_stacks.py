"""Experts that a checkpoint stacks into one tensor, taken apart: each gets tensors of its own.

GGUF stacks all gate matrices of a layer, all up and all down. gpt-oss's safetensors stack gate and
up in turns, transposed, or as MXFP4 with the scales in a tensor beside. Nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from inferno.config import MAX_EXPERTS
from inferno.errors import InvalidCheckpoint
from inferno.excerpt import quoted
from inferno.weights.checkpoint import RE_FETCH, Place
from inferno.weights.tensor import FORMATS

_GPT_OSS = re.compile(r"(.*\.mlp\.experts)\.(gate_up_proj|down_proj)(|_bias|_blocks|_scales)")
_PARTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


def unstacked(name: str, place: Place) -> Iterator[tuple[str, Place]]:
    """Yield a tensor of GGUF: under its name, or each expert's part if there is a `*` in it.

    Raises:
        InvalidCheckpoint: it cannot be a stack.
    """
    if "*" not in name:
        yield name, place
        return
    _check_stack(name, place, ranks=(2, 3))
    nbytes = place.nbytes // place.shape[0]
    for e in range(place.shape[0]):
        part = place._replace(
            offset=place.offset + e * nbytes, nbytes=nbytes, shape=place.shape[1:]
        )
        yield name.replace("*", str(e)), part


def unstack_gpt_oss(places: Mapping[str, Place]) -> dict[str, Place]:
    """Return the tensors of a safetensors checkpoint, with gpt-oss's stacks of experts apart.

    Raises:
        InvalidCheckpoint: one cannot be such a stack.
    """
    found: dict[str, Place] = {}
    for name, place in places.items():
        match = _GPT_OSS.fullmatch(name)
        if match is None:
            found[name] = place
            continue
        prefix, stem, kind = match.groups()
        if kind == "_scales":
            continue  # taken with the blocks
        parts = _PARTS[stem]
        _check_stack(name, place, ranks={"": (3,), "_bias": (2,), "_blocks": (4,)}[kind])
        rows = place.shape[1 if kind else 2]
        if rows % len(parts):
            raise _error(name, place, f"rows of {' and '.join(parts)} in turns")
        scales = None
        if kind == "_blocks":
            scales = places.get(f"{prefix}.{stem}_scales")
            if scales is None or scales.shape != place.shape[:3] or place.shape[3] != 16:
                raise _error(name, place, f"16 bytes for each of {stem}_scales")
        suffix = "bias" if kind == "_bias" else "weight"
        for e in range(place.shape[0]):
            for p, part in enumerate(parts):
                one = _part(place, scales, e, p, len(parts), transposed=kind == "")
                found[f"{prefix}.{e}.{part}.{suffix}"] = one
    return found


def _part(
    place: Place, scales: Place | None, expert: int, part: int, parts: int, *, transposed: bool
) -> Place:
    """Return every `parts`-th row from `part` on of one expert."""
    item = FORMATS[place.format].block_bytes
    per_expert = place.nbytes // place.shape[0]
    if scales is not None:
        _, rows, blocks, width = place.shape
        one = place._replace(format="mxfp4", shape=(rows // parts, 32 * blocks))
        row = blocks * width
        return one._replace(
            offset=place.offset + expert * per_expert + part * row,
            nbytes=per_expert - (parts - 1) * row,
            strides=(parts * row,),
            scales=scales._replace(
                offset=scales.offset + expert * rows * blocks + part * blocks,
                nbytes=(rows - (parts - 1)) * blocks,
                strides=(parts * blocks,),
            ),
        )
    if transposed:
        _, columns, rows = place.shape
        shape: tuple[int, ...] = (rows // parts, columns)
        strides: tuple[int, ...] = (parts * item, rows * item)
    else:
        shape, strides = (place.shape[1] // parts,), (parts * item,)
    return place._replace(
        offset=place.offset + expert * per_expert + part * item,
        nbytes=per_expert - (parts - 1) * item,
        shape=shape,
        strides=strides,
    )


def _check_stack(name: str, place: Place, ranks: tuple[int, ...]) -> None:
    if len(place.shape) not in ranks or not 0 < place.shape[0] <= MAX_EXPERTS or 0 in place.shape:
        raise _error(name, place, f"one of each of up to {MAX_EXPERTS:,} experts")


def _error(name: str, place: Place, expected: str) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"Tensor {quoted(name)}: expected {expected}, found shape {place.shape}", hint=RE_FETCH
    )
