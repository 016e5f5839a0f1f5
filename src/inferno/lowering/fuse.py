"""Passes that make fewer, larger operations of a graph without changing what it computes.

Each takes and returns the tensors in an order in which inputs come first.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from inferno.graph import Parameter, Tensor

FormatOf = Callable[[Parameter], str]


def _replace(tensors: list[Tensor], replacements: dict[Tensor, list[Tensor]]) -> list[Tensor]:
    """Return the tensors with each key's place taken by its list, whose last stands for it."""
    stands_for: dict[Tensor, Tensor] = {}
    result: list[Tensor] = []
    for tensor in tensors:
        for new in replacements.get(tensor, [tensor]):
            inputs = tuple(stands_for.get(t, t) for t in new.inputs)
            changed = any(a is not b for a, b in zip(inputs, new.inputs, strict=True))
            final = dataclasses.replace(new, inputs=inputs) if changed else new
            stands_for[new] = final
            result.append(final)
        if replacements.get(tensor):
            stands_for[tensor] = stands_for[replacements[tensor][-1]]
    return result


def _uses(tensors: list[Tensor]) -> Counter[Tensor]:
    return Counter(t for tensor in tensors for t in tensor.inputs)


def select_rows(tensors: list[Tensor]) -> list[Tensor]:
    """Compute the last norm and the head only for the rows whose logits are wanted."""
    uses = _uses(tensors)
    first = tensors[-1]
    while first.inputs[0].kind in ("rms_norm", "linear", "softcap") and uses[first.inputs[0]] == 1:
        first = first.inputs[0]
    select = Tensor("select", first.inputs, first.inputs[0].width)
    return _replace(tensors, {first: [select, dataclasses.replace(first, inputs=(select,))]})


def fold_scales(tensors: list[Tensor]) -> list[Tensor]:
    """Let an embedding or a product multiply its result by a constant."""
    uses = _uses(tensors)
    replacements: dict[Tensor, list[Tensor]] = {}
    for tensor in tensors:
        source = tensor.inputs[0] if tensor.kind == "scale" else tensor
        if tensor.kind == "scale" and source.kind in ("embed", "linear") and uses[source] == 1:
            attributes = {**source.attributes, "scale": tensor.attributes["factor"]}
            replacements[source] = []
            replacements[tensor] = [dataclasses.replace(source, attributes=attributes)]
    return _replace(tensors, replacements)


def fold_activations(tensors: list[Tensor]) -> list[Tensor]:
    """Make silu(a) * b and gelu(a) * b one operation."""
    uses = _uses(tensors)
    replacements: dict[Tensor, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.kind != "mul":
            continue
        activated, other = tensor.inputs
        if activated.kind in ("silu", "gelu") and uses[activated] == 1:
            kind = f"{activated.kind}_mul"
            replacements[activated] = []
            replacements[tensor] = [Tensor(kind, (activated.inputs[0], other), tensor.width)]
    return _replace(tensors, replacements)


def group_linears(tensors: list[Tensor], format_of: FormatOf) -> list[Tensor]:
    """Stack matrices that multiply the same input (q, k, v; gate, up) into one."""
    groups: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
    # What is added to a stream is added in place, by a product of its own.
    added = {t for tensor in tensors if tensor.kind == "add" for t in tensor.inputs}
    for tensor in tensors:
        if tensor.kind == "linear" and tensor not in added:
            formats = tuple(map(format_of, tensor.parameters))
            groups[tensor.inputs, formats, tensor.attributes["scale"]].append(tensor)
    replacements: dict[Tensor, list[Tensor]] = {}
    for members in groups.values():
        if len(members) < 2:
            continue
        lists = {
            key: tuple(v for m in members for v in m.attributes[key])
            for key in ("bias", "rope_head_dim", "widths")
        }
        stacked = Tensor(
            "linear",
            members[0].inputs,
            sum(m.width for m in members),
            tuple(p for m in members for p in m.parameters),
            {**members[0].attributes, **lists},
        )
        offset = 0
        for member in members:
            part = Tensor("slice", (stacked,), member.width, attributes={"offset": offset})
            replacements[member] = [part] if offset else [stacked, part]
            offset += member.width
    return _replace(tensors, replacements)


def _adds(tensor: Tensor) -> bool:
    if tensor.kind == "linear":
        return not tensor.attributes["experts"]
    return tensor.kind in ("rms_norm", "combine")


def fold_residuals(tensors: list[Tensor]) -> list[Tensor]:
    """Let what is added to the residual stream be added in place, by the operation that makes it.

    Only if nobody reads the old value of the stream later.
    """
    uses = _uses(tensors)
    last_use = {t: i for i, tensor in enumerate(tensors) for t in tensor.inputs}
    replacements: dict[Tensor, list[Tensor]] = {}
    for i, tensor in enumerate(tensors):
        if tensor.kind != "add":
            continue
        stream, added = tensor.inputs
        if not _adds(added):
            stream, added = added, stream
        if _adds(added) and uses[added] == 1 and last_use[stream] == i:
            kind, inputs = f"{added.kind}_add", (*added.inputs, stream)
            replacements[added] = []
            replacements[tensor] = [dataclasses.replace(added, kind=kind, inputs=inputs)]
    return _replace(tensors, replacements)
