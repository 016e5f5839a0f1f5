"""Which texts have their keys and values in memory: a tree of pages that all sessions share.

A node is a page: up to 64 tokens, after those of its ancestors. Only equal prefixes of ids are ever
reused, so that nothing of one text can reach another. Knows ids, and pages as things to hold; what
a token means to a user is nobody's business here.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inferno import _native

PAGE_POSITIONS = 64  # kPagePositions in native/kernels/table.h

Floats: TypeAlias = "npt.NDArray[np.float32]"

# Texts whose last logits are kept too, so that nothing at all is to be computed when one comes
# again. Of a vocabulary of 128,000 they are half a megabyte each.
MAX_LOGITS = 16


class _Node:
    """A page of tokens. One that is not full has no children, and no sibling begins with another's.

    `keys` are the tokens of `children`, sorted.
    """

    __slots__ = ("children", "keys", "page", "parent", "tokens")

    def __init__(
        self, tokens: tuple[int, ...], page: _native.Page | None, parent: _Node | None
    ) -> None:
        self.tokens = tokens
        self.page = page
        self.parent = parent
        self.keys: list[tuple[int, ...]] = []
        self.children: list[_Node] = []

    def closest(self, tokens: tuple[int, ...]) -> tuple[_Node | None, int]:
        """Return the child with the longest common beginning, and how long that is."""
        place = bisect_left(self.keys, tokens)
        best, longest = None, 0
        # In this order, what has most in common with `tokens` stands next to where they belong.
        for child in self.children[max(0, place - 1) : place + 1]:
            common = common_length(child.tokens, tokens)
            if common > longest:
                best, longest = child, common
        return best, longest

    def add(self, child: _Node) -> None:
        place = bisect_left(self.keys, child.tokens)
        self.children.insert(place, child)
        self.keys.insert(place, child.tokens)

    def remove(self, child: _Node) -> None:
        place = bisect_left(self.keys, child.tokens)
        del self.children[place], self.keys[place]


class PrefixCache:
    """The processed prefixes of an engine's texts, least recently used ones given up first.

    `capacity` is in bytes of pages, those of living sessions included; they are never taken from a
    session, so that these alone may exceed it. Zero keeps nothing.
    """

    def __init__(self, pool: _native.PagePool, capacity: int) -> None:
        self._pool = pool
        self._capacity = capacity
        self._root = _Node((), None, None)
        # Least recently used first. Whoever uses a node uses its ancestors after it, so that a node
        # always stands before its parent.
        self._order: dict[_Node, None] = {}
        self._logits: dict[_Node, Floats] = {}  # after a node's last token; oldest first
        self._lock = threading.RLock()

    @property
    def capacity(self) -> int:
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        self._capacity = capacity
        if capacity == 0:
            self.clear()
        self.make_room(0)

    @property
    def num_pages(self) -> int:
        """How many pages are kept."""
        return len(self._order)

    def find(self, tokens: Sequence[int]) -> tuple[list[_native.Page], int]:
        """Return the pages of the longest prefix of `tokens` that is there, and its length."""
        pages: list[_native.Page] = []
        length, node = 0, self._root
        with self._lock:
            while length < len(tokens):
                child, common = node.closest(tuple(tokens[length : length + PAGE_POSITIONS]))
                if child is None or child.page is None:
                    break
                pages.append(child.page)
                length += common
                node = child
                if common < PAGE_POSITIONS:
                    break
            self._use(node)
        return pages, length

    def find_logits(self, tokens: Sequence[int]) -> tuple[list[_native.Page], Floats] | None:
        """Return the pages of all of `tokens` and the logits after the last, if these are kept."""
        if not self._logits:
            return None
        pages, length = self.find(tokens)
        with self._lock:
            node = self._ending(tokens) if length == len(tokens) else None
            logits = self._logits.get(node) if node is not None else None
        return None if logits is None else (pages, logits)

    def keep(
        self, tokens: Sequence[int], cache: _native.KvCache, logits: Floats | None = None
    ) -> None:
        """Share what `cache` holds of `tokens`, and `logits` after the last of them, if given."""
        if not self._capacity:
            return
        length, node = min(len(tokens), len(cache)), self._root
        with self._lock:
            for index, start in enumerate(range(0, length, PAGE_POSITIONS)):
                part = tuple(tokens[start : min(start + PAGE_POSITIONS, length)])
                child, common = node.closest(part)
                if child is None or common < min(len(part), len(child.tokens)):
                    child = _Node(part, cache.page(index), node)
                    node.add(child)
                elif common < len(part):  # what was known of this page goes on
                    node.remove(child)
                    child.tokens, child.page = part, cache.page(index)
                    node.add(child)
                    self._logits.pop(child, None)
                node = child
            self._use(node)
            if logits is not None and length == len(tokens) and self._ending(tokens) is node:
                self._logits.pop(node, None)
                self._logits[node] = logits.copy()
                while len(self._logits) > MAX_LOGITS:
                    del self._logits[next(iter(self._logits))]
        self.make_room(0)

    def forget(self, tokens: Sequence[int], beyond: int) -> None:
        """Give up the pages that `tokens` have beyond so many, unless another text goes on there.

        For what was only likely to be asked for, when something else was.
        """
        end = len(tokens)
        with self._lock:
            node = self._ending(tokens)
            while node is not None and end > beyond and not node.children:
                parent = node.parent
                end -= len(node.tokens)
                self._forget(node)
                node = parent if parent is not self._root else None

    def make_room(self, pages: int) -> None:
        """Give up the least recently used pages, so that `pages` more stay within the capacity."""
        if not self._order:
            return
        with self._lock:
            excess = self._pool.pages_in_use + pages - self._capacity // self._pool.page_bytes
            if excess <= 0:
                return
            for node in list(self._order):
                # What a session holds would stay in memory.
                if not node.children and node.page is not None and not node.page.is_shared:
                    self._forget(node)
                    excess -= 1
                    if excess <= 0:
                        return

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            nodes = list(self._order)
            self._root = _Node((), None, None)
            self._order.clear()
            self._logits.clear()
            for node in nodes:  # parents and children hold each other
                node.page = node.parent = None
                node.children, node.keys = [], []

    def _ending(self, tokens: Sequence[int]) -> _Node | None:
        """Return the node whose last token is the last of `tokens`."""
        node = self._root
        for start in range(0, len(tokens), PAGE_POSITIONS):
            part = tuple(tokens[start : start + PAGE_POSITIONS])
            child, _ = node.closest(part)
            if child is None or child.tokens != part:
                return None
            node = child
        return None if node is self._root else node

    def _use(self, node: _Node) -> None:
        while node.parent is not None:
            self._order.pop(node, None)
            self._order[node] = None
            node = node.parent

    def _forget(self, node: _Node) -> None:
        assert node.parent is not None
        node.parent.remove(node)
        del self._order[node]
        self._logits.pop(node, None)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many items `a` and `b` have in common at the beginning."""
    count = 0
    for ours, theirs in zip(a, b, strict=False):
        if ours != theirs:
            break
        count += 1
    return count
