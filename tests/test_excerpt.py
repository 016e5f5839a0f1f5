"""Excerpts: short, on one line, whatever they are taken from."""

from __future__ import annotations

from typing import Any

import pytest

from inferno.excerpt import MAX_LENGTH, shown


@pytest.mark.parametrize(
    "value",
    [10**5000, -(10**5000), [10**5000], {10**5000: 10**5000}, ("a" * 10**6, 10**5000)],
    ids=shown,
)
def test_numbers_too_long_to_write_out_can_be_shown(value: Any) -> None:
    text = shown(value)
    assert "bits" in text and len(text) <= 3 * MAX_LENGTH
