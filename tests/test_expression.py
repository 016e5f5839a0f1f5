"""Repetitions written out, and counted."""

from __future__ import annotations

import pytest

from inferno.expression import MAX_ATOMS, atoms, lark_atoms


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}", 3),
        ("a{2,5}b", 6),
        ("(ab){3}", 6),
        ("(a{4}b){3}c", 16),
        ("((a{10}){10}){10}", 1000),
        (r"\({2}[(){}]{3}", 5),
        ("[]a]{2}[^]a]{2}", 4),
        ("a*(b|c)+", 3),
        ("a{0}b", 2),
        ("a{2,}", 2),
        ("))((a{3}", 3),
        ('( "a" { 3 } )', 5),
    ],
)
def test_a_repetition_counts_as_often_as_it_may_come(expression: str, count: int) -> None:
    assert atoms(expression) == count


def test_absurd_counts_are_too_many() -> None:
    for expression in ("a{4000000000}", "(a{1000}){1000}", "a{" + "9" * 5000 + "}"):
        assert atoms(expression) > MAX_ATOMS


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
