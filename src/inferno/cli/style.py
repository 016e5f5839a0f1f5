"""How text looks on a terminal: colours where wanted, and no control characters from models."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

_RED, _CYAN, _DIM = "31;1", "36", "2"

# Text of a model or a file may hold escape sequences that would move the cursor or rename the
# window: every C0 and C1 control but tab and newline becomes a visible mark.
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "�")
_CONTROLS |= {ord("\t"): "\t", ord("\n"): "\n", ord("\r"): ""}

# Hints speak to callers of the library: weights="q4_0" is --weights q4_0 on the command line.
_KEYWORD = re.compile(r"""\b([a-z_]+)=(["']?)([^\s"',;=()]+)\2""")


def printable(text: str) -> str:
    """Return `text` without anything that a terminal would obey instead of show."""
    return text.translate(_CONTROLS)


def has_colours(stream: TextIO) -> bool:
    """Tell whether `stream` is a terminal whose user wants colours (https://no-color.org)."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if sys.platform == "win32":
        from inferno import windows

        return windows.shows_escapes(stream)
    return True


def dim(text: str, stream: TextIO) -> str:
    """Return `text` as an aside, if `stream` shows colours."""
    return _painted(text, _DIM, stream)


def describe_error(message: str, hint: str | None, stream: TextIO) -> str:
    """Return `error: …` and `hint: …`, a line each, for `stream`."""
    text = f"{_painted('error:', _RED, stream)} {printable(message)}\n"
    if hint:
        hint = _KEYWORD.sub(lambda found: f"--{found[1].replace('_', '-')} {found[3]}", hint)
        text += f"{_painted('hint:', _CYAN, stream)} {printable(hint)}\n"
    return text


def format_bytes(count: int) -> str:
    """Return `count` bytes as 98 MB or 1.9 GB: decimal units, as disks and downloads have them."""
    size = float(count)
    for unit in ("B", "KB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def counted(number: int, noun: str) -> str:
    """Return `number` and its noun: 1 thread, 2 threads."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _painted(text: str, code: str, stream: TextIO) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if has_colours(stream) else text
