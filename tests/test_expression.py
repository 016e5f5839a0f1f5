"""Repetitions written out, and counted."""

from __future__ import annotations

import pytest

from inferno.expression import MAX_ATOMS, atoms


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
