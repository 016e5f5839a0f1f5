"""The fields of a request, asked for one by one; what nobody asked for is known to be unknown.

Names that others have and we do not are in two lists: those that change nothing of the answer are
ignored and reported, those that would change it are refused. Knows no particular request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from inferno.excerpt import quoted, shown
from inferno.server.failures import RequestFailed, invalid, unsupported

T = TypeVar("T")

# More names than this tell a client nothing, and would outgrow what proxies allow of a header.
MAX_NOTES = 32


class Fields:
    """One JSON object of a request. Null means that a field is not there, as with OpenAI."""

    values: Mapping[str, Any]

    def __init__(self, values: Any, ignored: list[str] | None = None) -> None:
        if not isinstance(values, Mapping):
            raise invalid(None, f"The body: expected a JSON object, found {_kind(values)}")
        self.values = values
        self._known: set[str] = set()
        self.ignored: list[str] = [] if ignored is None else ignored

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def take(self, name: str) -> Any:
        """Return the field, whatever it is, or None."""
        self._known.add(name)
        return self.values.get(name)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise wrong(name, "a string", value)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong(name, "true or false", value)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # JavaScript has one kind of number
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(name, "an integer", value)
        if not low <= value <= high:
            raise wrong(name, f"an integer from {low} to {high}", value)
        return value

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong(name, "a number", value)
        if not low <= value <= high:
            raise wrong(name, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def items(self, name: str, most: int) -> list[Any] | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise wrong(name, "a list", value)
        if len(value) > most:
            raise invalid(name, f"`{name}`: expected at most {most} items, found {len(value):,}")
        return value

    def mapping(self, name: str) -> dict[str, Any] | None:
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise wrong(name, "an object", value)
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str | None:
        value = self.take(name)
        if value is not None and value not in choices:
            raise wrong(name, " or ".join(f'"{choice}"' for choice in choices), value)
        return value if value is None else str(value)

    def ignore(self, *names: str) -> None:
        """Take no notice of these, and say so."""
        for name in names:
            if self.take(name) is not None:
                self.note(name)

    def refuse(self, name: str, why: str, *harmless: Any) -> None:
        """Refuse the field, unless its value is a `harmless` one that asks for nothing."""
        value = self.take(name)
        if value is None or any(type(value) is type(h) and value == h for h in harmless):
            return
        raise unsupported(name, f"`{name}`: {why}")

    def note(self, name: str) -> None:
        """Say that `name` was not, or not quite, followed."""
        if name not in self.ignored:
            self.ignored.append(name)

    def finish(self, *, strict: bool) -> None:
        """Note the fields that nobody asked for; if `strict`, refuse all that were noted."""
        for name in self.values:
            if name not in self._known:
                self.note(name)
        if strict and self.ignored:
            name = self.ignored[0]
            raise unsupported(name[:100], f"{quoted(name)}: this server does not know the field")


def notes_header(ignored: Sequence[str]) -> str:
    """Return `ignored` as the value of a header: plain words, and not too many."""
    words = [
        "".join(c if c.isascii() and (c.isalnum() or c in "_.-[]") else "?" for c in name[:64])
        for name in ignored[:MAX_NOTES]
    ]
    return ", ".join([*words, *(["..."] if len(ignored) > MAX_NOTES else [])])


def checked(name: str, check: Callable[[], T]) -> T:
    """Return `check()`; a ValueError of it is the field's."""
    try:
        return check()
    except ValueError as error:
        raise invalid(name, f"`{name}`: {error}") from None


def wrong(name: str, expected: str, found: Any) -> RequestFailed:
    return invalid(name, f"`{name}`: expected {expected}, found {shown(found)}")


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
