"""The command line: finds the command, and turns what goes wrong into a line and an exit code.

One module a command, imported only when it is called: this one must answer `--help` at once, so it
imports neither numpy nor anything that draws. Knows nothing of models or of what the commands do.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from inferno.cli.style import describe_error
from inferno.errors import InfernoError, InvalidOption, ModelNotFound, OutOfMemory, UnsupportedModel

COMMANDS = {
    "chat": ("chat [MODEL]", "talk to a model in the terminal"),
    "run": ("run MODEL [PROMPT]", "answer once; for scripts and pipes"),
    "serve": ("serve [MODEL]", "a chat page in the browser, and an API for OpenAI's clients"),
    "pull": ("pull MODEL", "fetch a model"),
    "list": ("list", "the models on this disk"),
    "rm": ("rm MODEL", "delete a fetched model"),
    "info": ("info MODEL", "what a model is, and the memory it takes"),
    "quantize": ("quantize MODEL OUT.gguf", "write a model in smaller weights"),
    "eval": ("eval MODEL --text FILE", "how good a model is at a text, and what weights cost"),
    "doctor": ("doctor", "describe and check this machine"),
    "bench": ("bench MODEL", "measure speed, beside the machine's limits and other engines"),
    "completion": ("completion SHELL", "have a shell complete all of this"),
}
"""Each name is a module of this package with a `main(arguments) -> exit code`."""

EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (InvalidOption, 2),
    (ModelNotFound, 3),
    (OutOfMemory, 4),
    (MemoryError, 4),
    (UnsupportedModel, 5),
)
OTHER_ERROR = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
PIPE_CLOSED = 141  # 128 + SIGPIPE

COMPLETING = "_ARGCOMPLETE"  # set by a shell that asks how a line may go on
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

OVERVIEW = """\
inferno runs large language models on the CPU.

usage: inferno COMMAND [OPTIONS]

commands:
{commands}

  inferno COMMAND --help    what a command understands
  inferno --version         the version

MODEL is a .gguf file, a directory with config.json and safetensors, a name such as
smollm2-135m-instruct, or hf.co/ORG/REPO:TYPE, which are fetched the first time they are asked
for, or ollama:NAME for what Ollama has fetched.

Start with:  inferno chat     in the terminal
             inferno serve    in the browser
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` is by default the command line's."""
    # Not list(…): once imported, the command of that name is what it means here.
    arguments = [*(sys.argv[1:] if arguments is None else arguments)]
    _open_closed_output()
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        is_chosen = "PYTHONIOENCODING" in os.environ
        if sys.platform == "win32" and not is_chosen and not sys.stdout.isatty():
            # Files and pipes get what we read from them: not the code page of old programs.
            reconfigure(encoding="utf-8")
        # A console that cannot show a character shows a question mark; it does not stop the reply.
        reconfigure(errors="replace")
    try:
        if COMPLETING in os.environ:
            importlib.import_module("inferno.cli.completion").answer(COMMANDS)
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _is_closed_pipe(error):
            _drop_output(sys.__stdout__, sys.__stderr__)
            return PIPE_CLOSED
        return _report(error, debug="--debug" in arguments)


def _is_closed_pipe(error: Exception) -> bool:
    """Tell whether nobody reads our output any more."""
    if isinstance(error, BrokenPipeError):
        return True
    # The C library of Windows has another name for it. Files have names, and errors of their own.
    is_unnamed = isinstance(error, OSError) and error.filename is None
    return sys.platform == "win32" and is_unnamed and getattr(error, "errno", 0) == errno.EINVAL


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(len(usage) for usage, _ in COMMANDS.values())
        lines = (f"  {usage:<{width}}    {summary}" for usage, summary in COMMANDS.values())
        sys.stdout.write(OVERVIEW.format(commands="\n".join(lines)))
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"inferno {_version()}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = "`inferno --help` lists the commands"
        if close:
            hint = f"did you mean `inferno {close[0]}`?"
        raise InvalidOption(f"Unknown command `{name}`", hint=hint)
    try:
        code: int = importlib.import_module(f"inferno.cli.{name}").main(arguments[1:])
    except SystemExit as done:  # argparse, after --help
        return done.code if isinstance(done.code, int) else 0
    return code


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("inferno-engine")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _report(error: Exception, *, debug: bool) -> int:
    code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), OTHER_ERROR)
    try:
        if debug:
            import traceback

            traceback.print_exception(error)
        if isinstance(error, InfernoError):
            message, hint = error.message, error.hint
        elif isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
            # Files have names, and errors of their own.
            _drop_output(sys.__stdout__)
            message, hint = f"standard output: {os.strerror(error.errno).lower()}", None
        else:
            message = f"{type(error).__name__}: {error}"
            hint = None if debug else "this was not foreseen; --debug shows where it happened"
        sys.stderr.write(describe_error(message, hint, sys.stderr))
    except OSError:
        _drop_output(sys.__stdout__, sys.__stderr__)
    return code


def _open_closed_output() -> None:
    # `inferno … >&-`: Python then has no stream at all, and the next file opened gets its number.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _drop_output(*streams: TextIO | None) -> None:
    # Otherwise the interpreter complains on its way out, when it flushes into the closed pipe.
    with open(os.devnull, "wb") as nowhere:
        for stream in streams:
            if stream is not None:
                os.dup2(nowhere.fileno(), stream.fileno())
