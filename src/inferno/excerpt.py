"""Pieces of files and requests as error messages may show them: short, on one line, escaped.

Knows nothing of where they come from. What was written by others must not steer a terminal.
"""

from __future__ import annotations

import reprlib
from typing import Any

MAX_LENGTH = 80


class _Excerpt(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python writes out integers of up to 4,300 digits
            return f"an integer of {x.bit_length():,} bits"


_repr = _Excerpt()
_repr.maxstring = _repr.maxother = _repr.maxlong = MAX_LENGTH


def shown(value: Any) -> str:
    """Return a short `repr` of `value`, the middle left out if need be."""
    return _repr.repr(value)


def quoted(name: str) -> str:
    """Return `name` in backticks, shortened and with control characters escaped."""
    return f"`{shown(name)[1:-1]}`"
