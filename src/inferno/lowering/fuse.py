"""Passes that make fewer, larger operations of a graph without changing what it computes.

Each takes and returns the tensors in an order in which inputs come first.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable

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
    while first.inputs[0].kind in ("rms_norm", "linear") and uses[first.inputs[0]] == 1:
        first = first.inputs[0]
    select = Tensor("select", first.inputs, first.inputs[0].width)
    return _replace(tensors, {first: [select, dataclasses.replace(first, inputs=(select,))]})


def fold_activations(tensors: list[Tensor]) -> list[Tensor]:
    """Make silu(a) * b one operation."""
    uses = _uses(tensors)
    replacements: dict[Tensor, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.kind != "mul":
            continue
        activated, other = tensor.inputs
        if activated.kind == "silu" and uses[activated] == 1:
            replacements[activated] = []
            replacements[tensor] = [Tensor("silu_mul", (activated.inputs[0], other), tensor.width)]
    return _replace(tensors, replacements)


def group_linears(tensors: list[Tensor], format_of: FormatOf) -> list[Tensor]:
    """Stack matrices that multiply the same input (q, k, v; gate, up) into one."""
    groups: dict[tuple[Tensor, str], list[Tensor]] = defaultdict(list)
    # What is added to a stream is added in place, by a product of its own.
    added = {t for tensor in tensors if tensor.kind == "add" for t in tensor.inputs}
    for tensor in tensors:
        if tensor.kind == "linear" and tensor not in added:
            groups[tensor.inputs[0], format_of(tensor.parameters[0])].append(tensor)
    replacements: dict[Tensor, list[Tensor]] = {}
    for (source, _), members in groups.items():
        if len(members) < 2:
            continue
        stacked = Tensor(
            "linear",
            (source,),
            sum(m.width for m in members),
            tuple(p for m in members for p in m.parameters),
            {
                key: tuple(v for m in members for v in m.attributes[key])
                for key in ("bias", "rope_head_dim", "widths")
            },
        )
        offset = 0
        for member in members:
            part = Tensor("slice", (stacked,), member.width, attributes={"offset": offset})
            replacements[member] = [part] if offset else [stacked, part]
            offset += member.width
    return _replace(tensors, replacements)


def fold_residuals(tensors: list[Tensor]) -> list[Tensor]:
    """Let a product add to the residual stream in place, if nobody reads the old value later."""
    uses = _uses(tensors)
    last_use = {t: i for i, tensor in enumerate(tensors) for t in tensor.inputs}
    replacements: dict[Tensor, list[Tensor]] = {}
    for i, tensor in enumerate(tensors):
        if tensor.kind != "add":
            continue
        stream, product = tensor.inputs
        if product.kind != "linear":
            stream, product = product, stream
        if product.kind == "linear" and uses[product] == 1 and last_use[stream] == i:
            replacements[product] = []
            replacements[tensor] = [
                dataclasses.replace(product, kind="linear_add", inputs=(product.inputs[0], stream))
            ]
    return _replace(tensors, replacements)
