"""GBNF means in Lark what it means in GBNF, and the size of a grammar is known beforehand."""

from __future__ import annotations

import pytest

from inferno.grammar import lark_atoms


@pytest.mark.parametrize(
    ("grammar", "count"),
    [
        ('start: "abc"', 3),
        ('start: /a{3}b/ "c" // "comment"', 5),
        ("start: X{1000}\nX: /a{10}/", 10),  # rules are not written out
        ('start: X\nX: Y{10} "b"\nY: Z{10}\nZ: "a"', 1 + 10 + 101),
        ('start: X\nX: ("a" | Y){2,3}\n  | Y "}{9}"\nY: /[b:]/i', 1 + 3 * 2 + 1 + 4),
        ('?start: X\nX.2[lazy]: "a:"{2}\n\n_Y: X X', 4 + 8),
        ('start[suffix=": "]: x\nx::_: "b"\nX: "\\"("{3}', 1 + 9),
        ('start: A20\nA0: "a"\n' + "".join(f"A{i + 1}: A{i} A{i}\n" for i in range(20)), 2**21 - 1),
        ('start: X\nX: Y\nY: X | "a"', 0),
    ],
)
def test_a_terminal_has_a_copy_of_each_terminal_in_it(grammar: str, count: int) -> None:
    assert lark_atoms(grammar) == count
