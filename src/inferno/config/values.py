"""Typed reading of hostile mappings: each number is checked before anyone multiplies with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.excerpt import shown

# Far above any real model, far below what overflows when a few of them are multiplied.
MAX_SIZE = 1 << 24
MAX_LAYERS = 1 << 12
MAX_CONTEXT = (1 << 31) - 1
MAX_EXPERTS = 1024  # kMaxExperts in native/kernels/table.h


class Values:
    """Typed reading of a mapping: `source` names it in errors, `prefix` goes before each key.

    A key that is absent or null has its default; without a default, that is an error. One that is
    absent has first that of `defaults`. `names` says how the source calls some of the keys.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        source: str,
        prefix: str = "",
        defaults: Mapping[str, Any] = MappingProxyType({}),
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.values = values
        self.source = source
        self.prefix = prefix
        self.defaults = defaults
        self.names = names

    def name(self, key: str) -> str:
        """Return how the source calls `key`."""
        return self.prefix + self.names.get(key, key)

    def has(self, key: str) -> bool:
        """Tell whether the source has a value for `key`."""
        return self.values.get(self.name(key)) is not None

    def integer(self, key: str, high: int, default: int | None = None, *, low: int = 1) -> int:
        value = self.get(key, default)
        if isinstance(value, list) and value and all(type(v) is int for v in value):
            raise UnsupportedModel(
                f"`{self.name(key)}` in {self.source}: values that vary by layer are not supported"
            )
        if type(value) is not int or not low <= value <= high:
            raise self.error(key, f"an integer from {low} to {high:,}", value)
        return value

    def number(self, key: str, high: float, default: float | None = None) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float) or not 0 < value <= high or not math.isfinite(value):
            raise self.error(key, f"a positive number up to {high:g}", value)
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false", value)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "text", value)
        return value

    def items(self, key: str, kind: type) -> list[Any]:
        value = self.get(key, [])
        if not isinstance(value, list) or (value and type(value[0]) is not kind):
            raise self.error(key, f"an array of {kind.__name__}", value)
        return value

    def token(self, key: str) -> int | None:
        tokens = self.tokens(key)
        if len(tokens) > 1:
            raise self.error(key, "one token id", list(tokens))
        return tokens[0] if tokens else None

    def tokens(self, key: str) -> tuple[int, ...]:
        value = self.get(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(type(token) is int for token in ids):
            raise self.error(key, "a token id or a list of them", value)
        return tuple(ids)

    def get(self, key: str, default: Any) -> Any:
        name = self.name(key)
        value = self.values[name] if name in self.values else self.defaults.get(key)
        if value is None:
            value = default
        if value is None:
            raise InvalidCheckpoint(f"`{name}` is missing from {self.source}")
        return value

    def optional_number(self, key: str, high: float = 1e6) -> float | None:
        return self.number(key, high) if self.is_set(key) else None

    def is_set(self, key: str) -> bool:
        """Tell whether `key` has a value, be it from `defaults`."""
        name = self.name(key)
        value = self.values[name] if name in self.values else self.defaults.get(key)
        return value is not None

    def error(self, key: str, expected: str, found: Any) -> InvalidCheckpoint:
        number = f"{len(found):,} of them" if isinstance(found, list) else shown(found)
        return InvalidCheckpoint(
            f"`{self.name(key)}` in {self.source}: expected {expected}, found {number}",
            hint="the file is damaged, or was edited by hand",
        )
