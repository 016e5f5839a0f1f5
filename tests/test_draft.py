"""Which tokens of a draft stay."""

from __future__ import annotations

from typing import Any

import pytest

from inferno.draft import settled

IDS = [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "is_finished"),
    [
        ("Hello ", True), ("Hello.", True), ("Hello,", True), ("Hello\n", True), ("你好。", True),
        ("Hel", False), ("7", False), ("a+", False), ("", False),
        ([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}], True),
        ([{"type": "text", "text": "a."}, {"type": "text", "text": "b"}], False),
    ],
)  # fmt: skip
def test_the_last_token_stays_where_a_word_is_finished(content: Any, is_finished: bool) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    assert settled(IDS, messages) == (IDS if is_finished else IDS[:-1])
