"""The texts between control tokens, and the ids that they had: a conversation is sent again with
every turn, and what was tokenized once need not be again."""

from __future__ import annotations

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import tokenizers

# The text, whether control tokens count in it, and whether a space is invented before it.
Stretch: TypeAlias = "tuple[str, bool, bool]"

# Characters that are remembered, some 256,000 tokens of prose: the contexts of many conversations.
MAX_CHARACTERS = 1 << 20
# Fewer are encoded in the time that looking them up takes.
FEWEST_CHARACTERS = 32


class Stretches:
    """Cuts texts where a tokenizer finds control tokens, and remembers what is between."""

    def __init__(self, added: Iterable[tokenizers.AddedToken]) -> None:
        # The library looks for these first, in the text as it is written, the longest one first;
        # what is between is no business of any other.
        first = [token for token in added if not token.normalized and token.content]
        self._is_control = {token.content: token.special for token in first}
        contents = sorted(self._is_control, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, contents)) or r"(?!)")
        # Such tokens take a part of what is beside them.
        self.can_cut = not any(token.lstrip or token.rstrip or token.single_word for token in first)
        self._ids: OrderedDict[Stretch, array[int]] = OrderedDict()
        self._left = MAX_CHARACTERS
        self._lock = threading.Lock()

    def cut(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield the stretches of `text`, each with the control token behind it; the last has ""."""
        position = 0
        for match in self._pattern.finditer(text):
            if self._is_control[match[0]]:
                yield text[position : match.start()], match[0]
                position = match.end()
        yield text[position:], ""

    def ids(
        self,
        text: str,
        special: bool,
        at_start: bool,
        encode: Callable[[str, bool, bool], list[int]],
    ) -> list[int]:
        """Return `encode(text, special, at_start)`, as it was before if it was."""
        if len(text) < FEWEST_CHARACTERS:
            return encode(text, special, at_start)
        key = (text, special, at_start)
        with self._lock:
            known = self._ids.get(key)
            if known is not None:
                self._ids.move_to_end(key)
                return known.tolist()
        ids = encode(text, special, at_start)
        with self._lock:
            if len(text) <= MAX_CHARACTERS and key not in self._ids:
                self._ids[key] = array("i", ids)
                self._left -= len(text)
                while self._left < 0:
                    self._left += len(self._ids.popitem(last=False)[0][0])
        return ids
