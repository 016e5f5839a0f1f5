"""How long an expression gets when its counted repetitions are written out, as compilers do.

Knows the brackets, classes and counts of regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# What is certain to follow is walked through for every mask, at 1 µs a character. Expressions of
# this length compile in tenths of a second; of a million atoms, in gigabytes.
MAX_ATOMS = 50_000

_ATOM = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]|\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}|[*+?|\s]|.", re.DOTALL
)

# A kind, and a number: ("(", 0), (")", 0), ("atoms", so many), ("times", how often the last comes).
Part = tuple[str, int]


def atoms(text: str) -> int:
    """Return how many characters and classes are in a regular expression with `x{3}` as `xxx`."""
    return written_out(_parts(text))


def written_out(parts: Iterable[Part]) -> int:
    """Return how many atoms are in `parts`, each as often as it may come."""
    total = last = 0
    outer: list[int] = []
    for kind, number in parts:
        if kind == "(":
            outer.append(total)
            total = last = 0
        elif kind == ")":
            last = total
            total += outer.pop() if outer else 0
        elif kind == "times":
            total += last * max(0, number - 1)
            last *= max(1, number)
        else:
            last = number
            total += number
    return total + sum(outer)


def _parts(text: str) -> Iterator[Part]:
    for match in _ATOM.finditer(text):
        atom = match[0]
        if atom in "()":
            yield atom, 0
        elif match[1] is not None:
            yield "times", highest(match[1], match[2])
        elif atom not in "*+?|" and not atom.isspace():
            yield "atoms", 1


def highest(*counts: str | None) -> int:
    """Return the higher of the bounds of a repetition, as far as they are there."""
    # More than nine digits are too many whatever they are.
    return max(int(n) if len(n) < 10 else 10**9 for n in counts if n)
