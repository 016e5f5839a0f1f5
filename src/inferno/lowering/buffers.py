"""Which buffer each value lives in: a linear scan, so that a layer reuses the last one's."""

from __future__ import annotations

from collections import defaultdict

from inferno.lowering.operations import Operation, Value


def assign_buffers(operations: list[Operation]) -> tuple[list[Value], dict[Value, int]]:
    """Return one value as the pattern of each buffer, and the buffer of every value.

    A buffer is free for a value of the same kind and width once its last reader is done. The
    operation that reads a value last may not write its result over it, so frees come after.
    """
    last_use = {value: i for i, op in enumerate(operations) for value in op.values()}
    patterns: list[Value] = []
    buffers: dict[Value, int] = {}
    free: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for i, op in enumerate(operations):
        for value in op.values():
            if value not in buffers:
                spare = free[value.kind, value.columns, value.extent]
                if spare:
                    buffers[value] = spare.pop()
                else:
                    buffers[value] = len(patterns)
                    patterns.append(value)
        for value in set(op.values()):
            if last_use[value] == i:
                free[value.kind, value.columns, value.extent].append(buffers[value])
    return patterns, buffers
