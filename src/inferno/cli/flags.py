"""Flags: what several commands take, derived from the options themselves.

A flag that is not given leaves no trace, so that the model's generation config can fill the gap.
Ranges are checked by `SamplingParams` and by the engine, not here.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
from typing import Any, NoReturn

from inferno.cli import COMPLETING
from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.options import MAX_CONSTRAINT, SamplingParams

# Those of the native core, which takes longer to ask than `--help` may take.
KV_CACHE_TYPES = ("f16", "f32", "q8_0")

ENGINE_FLAGS: dict[str, tuple[type, str, str]] = {
    "threads": (int, "N", "threads (as many as the machine can spare)"),
    "context": (int, "N", "tokens of context (the model's)"),
    "weights": (str, "FORMAT", "quantize while loading, e.g. q4_0 (as in the file)"),
    "kv_cache": (
        str,
        "TYPE",
        f"of keys and values: {', '.join(KV_CACHE_TYPES)} ({KV_CACHE_TYPES[0]})",
    ),
    "isa": (str, "ISA", "instruction set, e.g. avx2 (the best there is)"),
}

SAMPLING_HELP = {
    "temperature": "how far to stray from the likeliest; 0: never",
    "top_k": "keep the K likeliest; 0: off",
    "top_p": "keep the likeliest that sum to P; 1: off",
    "min_p": "keep what has P of the best's chance; 0: off",
    "repetition_penalty": "above 1 repeats less",
    "seed": "same seed, same reply",
    "max_tokens": "longest reply (what fits in the context)",
}
# Numbers that --help has no room for; the reference of the command line has them.
MORE_SAMPLING = {
    "typical_p": "keep the likeliest by surprise that sum to P; 1: off",
    "presence_penalty": "taken from the logits of tokens that were generated; 0: off",
    "frequency_penalty": "the same, as often as they were generated; 0: off",
    "repeat_last_n": "tokens that the three penalties look back (all); 0: none",
    "dry_multiplier": "how much to mind repeated passages; 0: off",
    "dry_base": "how much more for each token that they are longer",
    "dry_allowed_length": "tokens of a passage that may be repeated freely",
    "dry_penalty_last_n": "tokens that DRY looks back (all); 0: none",
    "xtc_probability": "how often to exclude the top choices; 0: off",
    "xtc_threshold": "the chance from which a token is a top choice",
}
# At most one of them.
CONSTRAINTS = {
    "json_schema": ("SCHEMA", "reply in JSON that fits this text or file"),
    "regex": ("REGEX", "reply with a text that matches"),
    "grammar": ("FILE", "reply as its rules (Lark or GBNF) allow"),
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are InvalidOption errors that suggest what was meant."""

    def __init__(self, command: str, *, usage: str, description: str, examples: str = "") -> None:
        super().__init__(
            prog=f"inferno {command}",
            usage=f"inferno {usage}",
            description=description,
            epilog=examples or None,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, max_help_position=28
            ),
            allow_abbrev=False,
        )
        self.add_argument("--debug", action="store_true", help="show where an error happened")

    def error(self, message: str) -> NoReturn:
        hint = f"`{self.prog} --help` lists the options"
        unknown = re.search(r"unrecognized arguments:.*?(--[\w-]+)", message, re.DOTALL)
        if unknown:
            close = difflib.get_close_matches(unknown[1], self._option_string_actions, n=1)
            hint = f"did you mean `{close[0]}`?" if close else hint
        message = re.sub(r"(\S{60})\S{60,}", r"\1...", message)  # what was typed may be long
        raise InvalidOption(message[:1].upper() + message[1:], hint=hint)

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        if COMPLETING in os.environ:
            from inferno.cli.completion import complete

            complete(self)
        # Intermixed, because `run MODEL --seed 1 PROMPT` is what people type.
        return self.parse_intermixed_args(arguments)


def add_engine_flags(parser: Parser) -> None:
    """Add what `Engine.load` takes."""
    group = parser.add_argument_group("engine (default in brackets)")
    for name, (kind, metavar, explanation) in ENGINE_FLAGS.items():
        group.add_argument(
            _flag(name),
            dest=name,
            type=kind,
            metavar=metavar,
            default=argparse.SUPPRESS,
            help=explanation,
        )


def add_sampling_flags(parser: Parser) -> None:
    """Add a flag for each number of `SamplingParams`, for `stop` and for `speculation`."""
    group = parser.add_argument_group(
        "sampling (default in brackets, if the model has none; more in the docs)"
    )
    for field in dataclasses.fields(SamplingParams):
        if field.name not in SAMPLING_HELP and field.name not in MORE_SAMPLING:
            continue
        # Annotations are text here: "float", "int", "int | None".
        kind = float if str(field.type).startswith("float") else int
        explanation = SAMPLING_HELP.get(field.name, argparse.SUPPRESS)
        if field.default is not None and field.name in SAMPLING_HELP:
            explanation += f" ({field.default:g})"
        group.add_argument(
            _flag(field.name),
            dest=field.name,
            type=kind,
            default=argparse.SUPPRESS,
            metavar="X" if kind is float else "N",
            help=explanation,
        )
    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        default=argparse.SUPPRESS,
        help="end the reply before TEXT; can be repeated",
    )
    group.add_argument(
        "--speculation",
        type=_speculation,
        metavar="N",
        default=argparse.SUPPRESS,
        help="guess N tokens, auto or off; same reply (auto)",
    )


def add_constraint_flags(parser: Parser) -> None:
    """Add what says which replies there may be."""
    for name, (metavar, explanation) in CONSTRAINTS.items():
        parser.add_argument(
            _flag(name), dest=name, metavar=metavar, default=argparse.SUPPRESS, help=explanation
        )


def engine_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given engine flags as keywords of `Engine.load`."""
    return {name: value for name, value in vars(arguments).items() if name in ENGINE_FLAGS}


def sampling_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given sampling flags as overrides, checked. Raises InvalidOption."""
    names = {*SAMPLING_HELP, *MORE_SAMPLING, *CONSTRAINTS, "stop", "speculation"}
    given = {name: value for name, value in vars(arguments).items() if name in names}
    if "json_schema" in given and not _is_json(given["json_schema"]):
        given["json_schema"] = _text_of("json_schema", given["json_schema"])
    if "grammar" in given:
        given["grammar"] = _text_of("grammar", given["grammar"])
    params = SamplingParams(**given)  # a mistake should not wait for a download
    if not CONSTRAINTS.keys().isdisjoint(given):
        from inferno import constraint

        constraint.check(params)
    return given


def _is_json(argument: str) -> bool:
    """Tell a schema's text from the name of a file."""
    return argument.lstrip()[:1] in ("{", "[") or argument.strip() in ("true", "false")


def _text_of(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            # One character more than is allowed tells that there are too many.
            return file.read(MAX_CONSTRAINT + 1)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise InvalidOption(
            f"`{_flag(name)}`: expected a file, found {shown(path)} ({reason})"
        ) from None


def _speculation(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
