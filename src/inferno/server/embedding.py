"""Vectors of texts for a request, some texts at a time, and no longer than the client waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.types import Receive

from inferno.scoring import shortened
from inferno.server.failures import CLIENT_GONE, RequestFailed, invalid, too_long
from inferno.server.fields import Fields, wrong
from inferno.server.replies import hung_up, unless
from inferno.server.service import in_thread

if TYPE_CHECKING:
    from inferno.engine import Engine
    from inferno.server.service import Service

MAX_INPUTS = 2048  # OpenAI's limit
# Tokens of the texts that share a call, which keeps the hidden states of all of them.
_TOKENS = 512


def inputs_of(value: Any, name: str) -> list[str | list[int]]:
    """Return the texts of a field: one or several, each as text or ids. Raises RequestFailed."""
    if isinstance(value, str) or _are_ids(value):
        return [value]
    if not isinstance(value, list) or not value:
        raise wrong(name, "text, ids, or a list of either", value)
    if len(value) > MAX_INPUTS:
        raise invalid(name, f"`{name}`: expected at most {MAX_INPUTS:,}, found {len(value):,}")
    for index, item in enumerate(value):
        if not isinstance(item, str) and not _are_ids(item):
            raise wrong(f"{name}[{index}]", "text or ids", item)
    return value


def ids_of(
    engine: Engine, inputs: Sequence[str | list[int]], name: str, *, truncates: bool = False
) -> list[list[int]]:
    """Return the ids of each text, with BOS if the model wants it. Takes a while.

    Raises:
        RequestFailed: one is empty or, unless it is to be truncated, does not fit.
    """
    tokenizer = engine.tokenizer
    bos = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    found = []
    for index, text in enumerate(inputs):
        # Control tokens in a text are only text.
        ids = [*bos, *tokenizer.encode(text)] if isinstance(text, str) else text
        if not ids:
            raise invalid(name, f"`{name}[{index}]`: expected some text, found none")
        if len(ids) > engine.context and not truncates:
            raise too_long(len(ids), engine.context, name)
        found.append(ids[: engine.context])
    return found


async def embed(
    service: Service,
    texts: Sequence[list[int]],
    receive: Receive,
    *,
    dimensions: int,
    pooling: str = "mean",
) -> list[Any]:
    """Return a vector (f32) for each text; stop between passes if the client hangs up.

    Raises:
        RequestFailed: the client is gone, or ids are none.
    """
    vectors: list[Any] = []
    is_over = threading.Event()

    def in_turn(work: Callable[[int], int]) -> None:
        if is_over.is_set():
            raise RequestFailed("The client is gone", CLIENT_GONE)
        service.scheduler.in_turn(work)

    async def work() -> None:
        start = 0
        while start < len(texts):
            end, tokens = start + 1, len(texts[start])
            while end < len(texts) and tokens + len(texts[end]) <= _TOKENS:
                tokens += len(texts[end])
                end += 1
            make = partial(service.engine.embed, texts[start:end], pooling, in_turn=in_turn)
            block = await in_thread(make)
            vectors.extend(shortened(block, dimensions))
            start = end

    try:
        await unless(work(), hung_up(receive))
    finally:
        is_over.set()
    return vectors


def dimensions_of(fields: Fields, engine: Engine) -> int:
    """Return how many dimensions are asked for; a vector has no more. Raises RequestFailed."""
    dimensions = fields.integer("dimensions", 1, engine.config.hidden_size)
    return engine.config.hidden_size if dimensions is None else dimensions


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(id) is int for id in value)
