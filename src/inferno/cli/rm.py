"""`inferno rm MODEL…`: delete fetched models."""

from __future__ import annotations

import json

from inferno.cli.flags import Parser
from inferno.cli.style import format_bytes, printable


def main(arguments: list[str]) -> int:
    """Delete, and say what was freed."""
    parser = Parser(
        "rm",
        usage="rm MODEL... [OPTIONS]",
        description="Delete fetched models, and what was quantized from them. Files that you keep\n"
        "yourself and models of Ollama's are left alone.",
    )
    parser.add_argument("models", metavar="MODEL", nargs="+", help="as `inferno list` names it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse(arguments)

    from inferno import hub

    freed = {model: hub.remove(model) for model in options.models}
    if options.json:
        print(json.dumps({"freed_bytes": freed}))
    else:
        for model, count in freed.items():
            print(f"deleted {printable(model)} ({format_bytes(count)})")
    return 0
