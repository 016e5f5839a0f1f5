"""Ids that callers give instead of text."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from itertools import islice

import numpy as np

from inferno.errors import InvalidOption
from inferno.excerpt import shown


def checked_ids(ids: Iterable[int], vocab_size: int, context: int) -> list[int]:
    """Return `ids` as a list of Python's integers, each from 0 to `vocab_size` - 1.

    Of what has no length, one id more than `context` is read: enough to be too many.

    Raises:
        InvalidOption: they are no integers, or not in the vocabulary.
    """
    # What a tokenizer gives; one by one, a thousand ids would take a tenth of a token's time.
    if (
        isinstance(ids, list)
        and set(map(type, ids)) == {int}
        and min(ids) >= 0
        and max(ids) < vocab_size
    ):
        return ids.copy()
    try:
        checked = [
            int(i) if isinstance(i, (int, np.integer)) and not isinstance(i, bool) else _refuse(i)
            for i in (ids if isinstance(ids, Sized) else islice(ids, context + 1))
        ]
    except TypeError:
        raise InvalidOption(
            f"Token ids: expected text or a list of integers, found {type(ids).__name__}"
        ) from None
    for i in checked:
        if not 0 <= i < vocab_size:
            raise InvalidOption(
                f"Token id {shown(i)}: expected 0 to {vocab_size - 1}, the vocabulary"
            )
    return checked


def _refuse(value: object) -> int:
    raise InvalidOption(f"Token ids: expected integers, found {shown(value)}")
