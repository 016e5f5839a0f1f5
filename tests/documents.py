"""The documents of the repository, and what stands in them: blocks, spans, links, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
README, ARCHITECTURE, CONTRIBUTING = (
    ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
)
PAGES = sorted(ROOT.glob("docs/**/*.md"))
DOCUMENTS = [README, ARCHITECTURE, CONTRIBUTING, *PAGES]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path, language: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, code) of the fenced blocks of a document."""
    text = document.read_text("utf-8")
    for match in FENCE.finditer(text):
        if match[1] == language:
            yield text.count("\n", 0, match.start(2)), match[2]


def prose(document: Path) -> str:
    """Return a document without its blocks."""
    return FENCE.sub("", document.read_text("utf-8"))


def commands(document: Path) -> list[str]:
    """List the lines of shell blocks and the code spans, without comments."""
    lines = [line for _, code in blocks(document, "sh") for line in code.splitlines()]
    return [line.split("  #")[0].strip() for line in [*lines, *SPAN.findall(prose(document))]]


def split_commands(code: str) -> list[list[str]]:
    """Split a shell block into the words of its commands, which may go over several lines."""
    found: list[list[str]] = []
    begun = ""
    for line in code.splitlines():
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        try:
            words = shlex.split(begun, comments=True)
        except ValueError:  # within quotes
            begun += "\n"
            continue
        found += [words] if words else []
        begun = ""
    assert not begun, code
    return found


def table(document: Path, heading: str) -> dict[str, list[str]]:
    """Return a table's rows by their first cell, which is in backticks: the one so headed."""
    text = document.read_text("utf-8")
    start = text.index(f"\n| {heading} |")
    rows = text[start:].strip().split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {first.strip("`"): rest for first, *rest in cells}
