"""`inferno completion`: the script that has a shell complete commands, options and models.

The script runs `inferno` itself with `_ARGCOMPLETE` set, and the parsers answer: what completes is
what is understood, and the models are those of the catalogue and on this disk.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Mapping

from inferno.cli.flags import KV_CACHE_TYPES, Parser

SHELLS = ("bash", "zsh", "fish", "powershell")
PROGRAM = "inferno"

EXAMPLES = """\
for this shell, and in ~/.bashrc or ~/.zshrc for the next ones:
  eval "$(inferno completion bash)"
  eval "$(inferno completion zsh)"
or once and for all:
  inferno completion fish > ~/.config/fish/completions/inferno.fish
"""


def main(arguments: list[str]) -> int:
    """Print the script."""
    parser = Parser(
        "completion",
        usage="completion SHELL",
        description="Print the script that has a shell complete commands, options and models.",
        examples=EXAMPLES,
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    options = parser.parse(arguments)

    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode([PROGRAM], shell=options.shell))
    return 0


def answer(commands: Mapping[str, tuple[str, str]]) -> None:
    """Tell the shell what the word under its cursor may become, and exit."""
    from argcomplete.lexers import split_line

    _, _, _, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    start = int(os.environ["_ARGCOMPLETE"])  # words before what is ours: 1, or 2 of `python FILE`
    if len(words) > start and words[start] in commands:
        # To the parser of a command, that is the program.
        os.environ["_ARGCOMPLETE"] = str(start + 1)
        importlib.import_module(f"inferno.cli.{words[start]}").main([])
        return
    parser = argparse.ArgumentParser(PROGRAM)
    parser.add_argument("--version", action="store_true")
    parser.add_argument("command", choices=commands)
    complete(parser)


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer for one command, and exit."""
    import argcomplete

    for action in parser._actions:
        if action.dest in _COMPLETERS:
            action.completer = _COMPLETERS[action.dest]  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def _models(prefix: str, **_: object) -> Iterable[str]:
    from argcomplete.completers import FilesCompleter

    from inferno.catalogue import CATALOGUE

    return [*_stored(prefix), *CATALOGUE, *FilesCompleter(("gguf",))(prefix)]


def _stored(prefix: str, **_: object) -> Iterable[str]:
    from inferno import hub

    return [model.name for model in hub.stored()]


def _weights(prefix: str, **_: object) -> Iterable[str]:
    from inferno.recipes import weight_choices

    return weight_choices()


def _isas(prefix: str, **_: object) -> Iterable[str]:
    from inferno.selftest import isas

    return isas()[0]


_COMPLETERS = {
    "model": _models,
    "models": _stored,
    "weights": _weights,
    "type": _weights,
    "kv_cache": lambda **_: KV_CACHE_TYPES,
    "isa": _isas,
}
