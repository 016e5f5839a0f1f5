"""Ids that callers give are integers of the vocabulary, or refused by name."""

from __future__ import annotations

from itertools import count, repeat
from typing import Any

import numpy as np
import pytest

from inferno.errors import InvalidOption
from inferno.token_ids import checked_ids


@pytest.mark.parametrize("made", [list, tuple, np.array, iter, lambda ids: (i for i in ids)])
def test_whatever_holds_integers_becomes_a_list_of_them(made: Any) -> None:
    found = checked_ids(made([0, 7, 511]), 512, 100)
    assert found == [0, 7, 511] and set(map(type, found)) == {int}


def test_the_list_is_a_copy() -> None:
    ids = [1, 2]
    assert checked_ids(ids, 512, 100) is not ids


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, np.float32(1), [1]])
def test_what_is_no_integer_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="Token ids: expected integers, found"):
        checked_ids([1, wrong], 512, 100)


@pytest.mark.parametrize("wrong", [-1, 512, 2**63, -(2**80)])
def test_what_no_token_has_is_refused(wrong: int) -> None:
    for ids in ([1, wrong], (1, wrong)):
        with pytest.raises(InvalidOption, match=r"expected 0 to 511, the vocabulary"):
            checked_ids(ids, 512, 100)


def test_of_an_endless_stream_one_more_than_the_context_is_read() -> None:
    assert len(checked_ids(repeat(5), 512, 100)) == 101
    stream = count()
    assert checked_ids(stream, 512, 100) == list(range(101))
    assert next(stream) == 101
