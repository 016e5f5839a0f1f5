"""`inferno run MODEL [PROMPT]`: one prompt, one answer on stdout, nothing else there."""

from __future__ import annotations

import json
import sys

from inferno.cli import standard_input
from inferno.cli.flags import (
    Parser,
    add_constraint_flags,
    add_engine_flags,
    add_sampling_flags,
    sampling_options,
)
from inferno.cli.loading import load, print_load_line
from inferno.cli.reply import answer, stats_dict, stats_line
from inferno.cli.style import dim
from inferno.errors import InvalidOption

EXAMPLES = """\
examples:
  inferno run smollm2-135m-instruct "What is Rust?" --temperature 0
  inferno run model.gguf "Summarize this:" - < notes.txt
"""


def main(arguments: list[str]) -> int:
    """Answer one prompt."""
    parser = Parser(
        "run",
        usage="run MODEL [PROMPT] [OPTIONS]",
        examples=EXAMPLES,
        description="Answer PROMPT (a lone - in it, or none at all: standard input) and exit.",
    )
    parser.add_argument("model", metavar="MODEL", help=".gguf file, directory or name")
    parser.add_argument("prompt", metavar="PROMPT", nargs="*", default=[], help="what to answer")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument(
        "--raw", action="store_true", help="continue PROMPT without a chat template"
    )
    parser.add_argument(
        "--json", action="store_true", help="print text and statistics as one JSON object"
    )
    parser.add_argument("--verbose", action="store_true", help="model and speed on stderr")
    add_constraint_flags(parser)
    add_engine_flags(parser)
    add_sampling_flags(parser)
    options = parser.parse(arguments)
    sampling = sampling_options(options)
    if options.raw and options.system is not None:
        raise InvalidOption("`--system`: a raw prompt has no system message, found --raw too")
    prompt = _prompt(options.prompt, is_raw=options.raw)

    engine = load(options)
    if options.verbose:
        print_load_line(engine)
    if options.raw:
        generation = engine.generate(prompt, **sampling)
    else:
        system = (
            [{"role": "system", "content": options.system}] if options.system is not None else []
        )
        generation = engine.chat([*system, {"role": "user", "content": prompt}], **sampling)
    if options.json:
        text = "".join(generation)
        print(
            json.dumps(
                {
                    "model": engine.config.name,
                    "text": text,
                    "finish_reason": generation.finish_reason,
                    "stats": stats_dict(generation.stats),
                }
            )
        )
    else:
        answer(generation)
    if options.verbose:
        print(dim(stats_line(generation.stats), sys.stderr), file=sys.stderr)
    return 0


def _prompt(words: list[str], *, is_raw: bool) -> str:
    """Return the prompt: the words, with standard input where a lone - stands or if there are none.

    Input is never read unasked: a caller's open pipe would hang the command, and in a shell's
    `while read` loop it would swallow the lines to come.
    """
    if not words and standard_input.is_terminal():
        raise InvalidOption(
            "PROMPT: expected some text, found none",
            hint='`inferno run MODEL "…"`, or pipe the text in',
        )
    if not words:
        text = standard_input.read_text()
        # The newline that ends a line of shell output is no part of a message.
        prompt = text if is_raw else text.removesuffix("\n").removesuffix("\r")
    elif "-" in words:
        place = words.index("-")
        parts = (" ".join(words[:place]), standard_input.read_text(), " ".join(words[place + 1 :]))
        prompt = "\n\n".join(part for part in parts if part)
    else:
        prompt = " ".join(words)
        if standard_input.holds_unread_data():
            print("note: standard input was not read; a - in PROMPT reads it", file=sys.stderr)
    if not prompt and not is_raw:
        raise InvalidOption("PROMPT: expected some text, found none")
    return prompt
