"""How long expressions get when repetitions and references are written out, as compilers do.

Knows the brackets, classes and counts of regular expressions, and the definitions of Lark grammars.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest

# What is certain to follow is walked through for every mask, at 1 µs a character. Expressions of
# this length compile in tenths of a second; of a million atoms, in gigabytes.
MAX_ATOMS = 50_000

_ATOM = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]|\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}|[*+?|\s]|.", re.DOTALL
)
# Strings, expressions and comments of Lark: what is in them is no syntax.
LARK_OPAQUE = re.compile(
    r'"((?:\\.|[^"\\\n])*)"|/(?!/)((?:\\.|[^/\\\n])+)/[a-z]*|//[^\n]*', re.DOTALL
)
_LARK_HEAD = re.compile(
    r'^[ \t]*[?!]*([^\W\d]\w*)(?:\.\d+)?[ \t]*(?:\[(?:"(?:\\.|[^"\\\n])*"|[^\]"])*\])?[^\n:"/]*:',
    re.MULTILINE,
)
_LARK_PART = re.compile(
    rf"{LARK_OPAQUE.pattern}|([^\W\d]\w*)|([(\[])|([)\]])|\{{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}}",
    re.DOTALL,
)


# A kind, and a number: ("(", 0), (")", 0), ("atoms", how many), ("times", how often the last comes).
Part = tuple[str, int]


def atoms(text: str) -> int:
    """Return how many characters and classes are in a regular expression with `x{3}` as `xxx`."""
    return _written_out(_parts(text))


def lark_atoms(lark: str) -> int:
    """Return how many characters and classes the expressions of a Lark grammar have, written out.

    A terminal, whose name is in capitals, has a copy of each terminal it refers to; a rule has none.
    """
    bodies: dict[str, str] = {}
    heads = list(_LARK_HEAD.finditer(lark))
    for head, following in zip_longest(heads, heads[1:]):
        body = lark[head.end() : following.start() if following else len(lark)]
        bodies[head[1]] = bodies.get(head[1], "") + body
    references = {
        name: [part[3] for part in _LARK_PART.finditer(body) if part[3] in bodies]
        for name, body in bodies.items()
        if name.isupper()
    }
    sizes: dict[str, int] = {}
    try:
        for name in TopologicalSorter(references).static_order():
            sizes[name] = _written_out(_lark_parts(bodies[name], sizes))
    except CycleError:  # no expression contains itself; the compiler will say so
        pass
    rules = [body for name, body in bodies.items() if name not in references]
    loose = sum(n for body in rules for kind, n in _lark_parts(body, {}) if kind == "atoms")
    return sum(sizes.values()) + loose


def _written_out(parts: Iterable[Part]) -> int:
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
            yield "times", _most(match[1], match[2])
        elif atom not in "*+?|" and not atom.isspace():
            yield "atoms", 1


def _lark_parts(body: str, sizes: Mapping[str, int]) -> Iterator[Part]:
    for match in _LARK_PART.finditer(body):
        text, expression, name, opens, closes, low, high = match.groups()
        if text is not None:
            yield "atoms", len(text)
        elif expression is not None:
            yield "atoms", atoms(expression)
        elif name is not None:
            yield "atoms", sizes.get(name, 0)
        elif opens or closes:
            yield "(" if opens else ")", 0
        elif low is not None:
            yield "times", _most(low, high)


def _most(*counts: str | None) -> int:
    # More than nine digits are too many whatever they are.
    return max(int(n) if len(n) < 10 else 10**9 for n in counts if n)
