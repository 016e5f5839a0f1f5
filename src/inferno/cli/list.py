"""`inferno list`: the models on this disk, and with --all those that have a name."""

from __future__ import annotations

import json
import time
from typing import Any

from inferno.cli.flags import Parser
from inferno.cli.style import counted, format_bytes, printable

_AGES = ((60, "minute"), (60, "hour"), (24, "day"), (7, "week"), (4.35, "month"), (12, "year"))


def main(arguments: list[str]) -> int:
    """Print a table."""
    parser = Parser(
        "list",
        usage="list [OPTIONS]",
        description="List the models that need not be fetched: of the catalogue, of the Hugging\n"
        "Face cache, and of Ollama.",
    )
    parser.add_argument("--all", action="store_true", help="and what the catalogue can fetch")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse(arguments)

    rows = _rows(with_catalogue=options.all)
    if options.json:
        print(json.dumps({"models": rows}, indent=1))
        return 0
    if not rows:
        print("no models yet; `inferno list --all` shows what can be fetched by name")
        return 0
    table = [("NAME", "SIZE", "FROM", "MODIFIED")]
    for row in rows:
        modified = age(time.time() - row["modified"]) if row["path"] else "not fetched"
        table.append((printable(row["name"]), format_bytes(row["bytes"]), row["from"], modified))
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    for name, size, source, modified in table:
        line = f"{name:<{widths[0]}}  {size:>{widths[1]}}  {source:<{widths[2]}}  {modified}"
        print(line.rstrip())
    return 0


def age(seconds: float) -> str:
    """Return how long ago something was, as people say it: 3 hours ago."""
    if seconds < 60:
        return "just now"
    amount, unit = seconds, "second"
    for many, larger in _AGES:
        if amount < many:
            break
        amount, unit = amount / many, larger
    return f"{counted(int(amount), unit)} ago"


def _rows(*, with_catalogue: bool) -> list[dict[str, Any]]:
    from inferno import hub
    from inferno.catalogue import CATALOGUE

    rows: list[dict[str, Any]] = [
        {
            "name": model.name,
            "bytes": model.bytes,
            "from": model.source,
            "path": str(model.path),
            "modified": model.modified,
        }
        for model in hub.stored()
    ]
    here = {row["name"] for row in rows}
    for entry in CATALOGUE.values() if with_catalogue else ():
        if entry.name not in here:
            rows.append(
                {
                    "name": entry.name,
                    "bytes": entry.bytes,
                    "from": f"catalogue, {entry.licence}",
                    "path": None,
                    "modified": None,
                }
            )
    return rows
