"""Forward passes over texts that no session holds: for logits, scores and vectors.

A long text takes several passes, short ones share one; no bit of a row depends on which.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from inferno import _native
from inferno.graph import Floats
from inferno.loading import LOGITS_ROWS, MAX_PASS_ROWS
from inferno.session import Rows, context_full

if TYPE_CHECKING:
    from inferno.engine import Engine

# Runs a function when a forward pass may be run, with how many rows that may have; it returns how
# many they were.
InTurn: TypeAlias = Callable[[Callable[[int], int]], None]


def at_once(work: Callable[[int], int]) -> None:
    """Be the only one who asks for passes."""
    work(MAX_PASS_ROWS)


def logit_blocks(
    engine: Engine,
    ids: Sequence[int],
    first: int = 0,
    cache: _native.KvCache | None = None,
    in_turn: InTurn = at_once,
) -> Iterator[Floats]:
    """Yield the logits after ids[first], ids[first + 1], …, some rows at a time.

    `cache` may hold some of the ids before those; it grows by the rest.

    Raises:
        ContextFull: there are more ids than the context has positions.
    """
    if len(ids) > engine.context:
        raise context_full(0, len(ids), engine)
    grown = engine._new_cache() if cache is None else cache
    array = np.array(ids, dtype=np.int32)
    found: list[Floats] = []

    def run(room: int) -> int:
        start = len(grown)
        wanted, end = ("none", first) if start < first else ("all", start + LOGITS_ROWS)
        chunk = array[start : min(start + room, end)]
        rows = engine._forward([(grown, chunk, wanted)])
        if wanted == "all":
            found.append(rows)
        return len(chunk)

    while len(grown) < len(ids):
        in_turn(run)
        yield from found
        found.clear()


def hidden_blocks(
    engine: Engine, texts: Sequence[Sequence[int]], in_turn: InTurn = at_once
) -> Iterator[tuple[int, Floats]]:
    """Yield (number of the text, hidden states of some of its tokens), in their order.

    Short texts share a pass, and with it the weights that it reads.
    """
    left = deque(
        (number, engine._new_cache(), np.array(text, dtype=np.int32))
        for number, text in enumerate(texts)
    )
    found: list[tuple[int, Floats]] = []

    def run(room: int) -> int:
        batch = []
        while left and room:
            number, cache, ids = left.popleft()
            batch.append((number, cache, ids[:room]))
            if len(ids) > room:
                left.appendleft((number, cache, ids[room:]))
            room -= len(batch[-1][2])
        passed: list[Rows] = [(cache, ids, "all") for _, cache, ids in batch]
        rows, start = engine._forward_hidden(passed), 0
        for number, _, ids in batch:
            found.append((number, rows[start : start + len(ids)]))
            start += len(ids)
        return start

    while left:
        in_turn(run)
        yield from found
        found.clear()
