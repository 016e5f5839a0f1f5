"""What of a text that is still being typed is likely to be a part of the one that is sent."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any


def settled(ids: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> Sequence[int]:
    """Return those of `ids` that are worth processing now: they are the prompt of `messages`, the
    last of which is the draft, without an end of its turn.

    What ends in a space or a full stop is finished; of "hel" nobody knows which token it becomes.
    """
    content = messages[-1]["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    is_finished = text[-1:].isspace() or unicodedata.category(text[-1:] or "x").startswith("P")
    return ids if is_finished else ids[:-1]
