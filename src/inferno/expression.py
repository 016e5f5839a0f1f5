"""How long an expression gets when its counted repetitions are written out, as compilers do.

Knows the brackets, classes and counts that regular expressions and grammars share.
"""

from __future__ import annotations

import re

# Expressions of this length compile in tenths of a second; of a million atoms, in gigabytes.
MAX_ATOMS = 100_000

_ATOM = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]|\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}|[*+?|\s]|.", re.DOTALL
)


def atoms(text: str) -> int:
    """Return how many characters and classes are in `text` with `x{3}` as `xxx`."""
    total = last = 0
    outer: list[int] = []
    for match in _ATOM.finditer(text):
        atom = match[0]
        if atom == "(":
            outer.append(total)
            total = last = 0
        elif atom == ")":
            last = total
            total += outer.pop() if outer else 0
        elif match[1] is not None:
            # More than nine digits are too many whatever they are.
            count = max(int(n) if len(n) < 10 else 10**9 for n in match.groups() if n)
            total += last * max(0, count - 1)
            last *= max(1, count)
        elif atom not in "*+?|" and not atom.isspace():
            last = 1
            total += 1
    return total + sum(outer)
