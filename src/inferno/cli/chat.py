"""`inferno chat [MODEL]`: a conversation in the terminal, or one answer where there is none."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from inferno.catalogue import DEFAULT_MODEL
from inferno.cli import picker, standard_input
from inferno.cli.conversation import Conversation
from inferno.cli.flags import Parser, add_engine_flags, add_sampling_flags, sampling_options
from inferno.cli.loading import load, load_line, print_load_line
from inferno.cli.read_ahead import ReadAhead
from inferno.cli.reply import (
    answer,
    cancelled_by_interrupt,
    silent_keyboard,
    stats_line,
    stream,
)
from inferno.cli.style import counted, describe_error, dim
from inferno.errors import ContextFull, InfernoError, InvalidOption

if TYPE_CHECKING:
    from inferno import Engine, Stats
    from inferno.cli.terminal import Terminal

# A path such as /etc/hosts, or a fraction of one, is a message and no command.
_COMMAND = re.compile(r"/(?P<name>[A-Za-z?]*)(?:\s+(?P<argument>.*))?", re.DOTALL)


def main(arguments: list[str]) -> int:
    """Chat, or answer once if there is a prompt or no terminal."""
    parser = Parser(
        "chat",
        usage="chat [MODEL] [OPTIONS]",
        description="Talk to a model. With --prompt, or off a terminal, answer once and exit.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help=f".gguf file, directory or name ({DEFAULT_MODEL})",
    )
    parser.add_argument("--prompt", metavar="TEXT", help="answer TEXT and exit")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument(
        "--no-read-ahead", action="store_true", help="process a message only when it is sent"
    )
    parser.add_argument("--verbose", action="store_true", help="statistics after each reply")
    add_engine_flags(parser)
    add_sampling_flags(parser)
    options = parser.parse(arguments)
    sampling = sampling_options(options)
    prompt = options.prompt or _prompt_from_elsewhere()
    if options.model is None:
        from inferno import hub

        is_here = bool(prompt) or hub.find(DEFAULT_MODEL) is not None
        options.model = DEFAULT_MODEL if is_here else picker.pick()
        if options.model is None:
            return 0

    engine = load(options)
    conversation = Conversation(engine, system=options.system, sampling=sampling)
    if prompt:
        print_load_line(engine)
        generation = conversation.reply_to(prompt)
        answer(generation)
        if options.verbose:
            print(dim(stats_line(generation.stats), sys.stderr), file=sys.stderr)
        return 0

    from inferno.cli.terminal import Terminal, unquoted
    from inferno.hub import cache_folder

    print(dim(load_line(engine), sys.stdout))
    read_ahead = None if options.no_read_ahead else ReadAhead(conversation.read_ahead)

    def on_draft(draft: str) -> None:
        text = unquoted(draft)
        if read_ahead is not None and text.strip() and not _COMMAND.fullmatch(text.strip()):
            read_ahead.offer(text)

    try:
        Chat(
            engine,
            conversation,
            Terminal(cache_folder() / "chat-history", Chat.completions(), on_draft),
            read_ahead=read_ahead,
            is_verbose=options.verbose,
        ).run()
    finally:
        if read_ahead is not None:
            read_ahead.close()
    return 0


def _prompt_from_elsewhere() -> str:
    """Return standard input where there is no terminal to chat on; "" where there is one."""
    if standard_input.is_terminal() and sys.stdout.isatty():
        return ""
    prompt = standard_input.read_text().strip()
    if not prompt:
        raise InvalidOption(
            "No prompt: expected a terminal to chat on or a message, found neither",
            hint='`inferno chat --prompt "…"`, or pipe the message in',
        )
    return prompt


class Chat:
    """The loop: read a message, stream the reply, until the user leaves."""

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        terminal: Terminal,
        *,
        read_ahead: ReadAhead | None = None,
        is_verbose: bool = False,
    ) -> None:
        self._read_ahead = read_ahead
        self._engine = engine
        self._conversation = conversation
        self._terminal = terminal
        self._is_verbose = is_verbose
        self._stats: Stats | None = None
        self._is_over = False

    def run(self) -> None:
        """Go on until Ctrl-D, `/exit`, or Ctrl-C twice at an empty prompt."""
        unsent = ""
        while not self._is_over:
            text = self._terminal.read(default=unsent)
            if text is None:
                return
            unsent = ""
            if self._read_ahead is not None:
                self._read_ahead.stop()
            if text.strip().lower() in ("exit", "quit"):
                return
            command = _COMMAND.fullmatch(text.strip())
            if command:
                self._obey(command["name"].lower(), (command["argument"] or "").strip())
            else:
                unsent = self._take_turn(text)

    def _take_turn(self, text: str) -> str:
        """Stream the reply to `text`; return `text` if it got none, to be edited and sent again."""
        pieces: list[str] = []
        failure: InfernoError | None = None
        is_stopped = False
        try:
            generation = self._conversation.reply_to(text)
            with cancelled_by_interrupt(generation) as interruption, silent_keyboard():
                for piece in stream(generation):
                    pieces.append(piece)
            is_stopped = interruption.happened
            self._stats = generation.stats
        except KeyboardInterrupt:
            self._conversation.renew_session()
            is_stopped = True
        except InfernoError as error:
            failure = error
        reply = "".join(pieces)
        if reply and not reply.endswith("\n"):
            print()
        if reply:
            self._conversation.keep(text, reply)
        if failure is not None:
            self._explain(failure, is_answered=bool(reply))
        elif is_stopped:
            self._note("(stopped)")
        elif not reply:
            self._note("(the model had nothing to say)")
        elif generation.finish_reason == "length":
            full = self._conversation.used_tokens >= self._engine.context
            reason = "the context is full; /clear starts anew" if full else "the limit of tokens"
            self._note(f"(cut: {reason})")
        if self._is_verbose and self._stats is not None and failure is None:
            self._note(stats_line(self._stats))
        return "" if reply or not (failure or is_stopped) else text

    def _explain(self, error: InfernoError, *, is_answered: bool) -> None:
        hint = error.hint
        if isinstance(error, ContextFull):
            parts = ["/clear starts anew", None if is_answered else "your message is kept", hint]
            hint = "; ".join(part for part in parts if part)
        sys.stdout.write(describe_error(error.message, hint, sys.stdout))

    def _note(self, text: str) -> None:
        print(dim(text, sys.stdout))

    # Commands ─────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def completions() -> list[str]:
        """Return the commands as they are typed."""
        return [f"/{name}" for name in _COMMANDS]

    def _obey(self, name: str, argument: str) -> None:
        name = {"": "help", "?": "help", "bye": "exit", "quit": "exit"}.get(name, name)
        if name in _COMMANDS:
            _COMMANDS[name][2](self, argument)
            return
        close = difflib.get_close_matches(name, _COMMANDS, n=1)
        suggestion = f"did you mean /{close[0]}?" if close else "/help lists the commands"
        sys.stdout.write(describe_error(f"Unknown command /{name}", suggestion, sys.stdout))

    def _help(self, argument: str) -> None:
        rows = [(f"/{name} {value}", what) for name, (value, what, _) in _COMMANDS.items()]
        rows += [
            ("Alt-Enter", 'a new line; so does Enter between """ and """'),
            ("Ctrl-C", "stop the reply; at an empty prompt, twice, leave"),
            ("Ctrl-D", "leave"),
            ("Ctrl-R, up, down", "earlier messages"),
        ]
        for left, right in rows:
            print(f"  {left:<18}{right}")

    def _clear(self, argument: str) -> None:
        self._conversation.clear()
        self._stats = None
        self._note("(a new conversation)")

    def _system(self, argument: str) -> None:
        if not argument:
            system = self._conversation.system
            shown = "as the model has it" if system is None else system or "(empty)"
            self._note(f"system: {shown}")
            return
        self._conversation.system = "" if argument == '""' else argument
        self._note("(from the next message on)")

    def _show_stats(self, argument: str) -> None:
        if self._stats is not None:
            print(stats_line(self._stats))
        used, turns = self._conversation.used_tokens, len(self._conversation.turns) // 2
        print(f"context {used} of {self._engine.context} tokens, {counted(turns, 'turn')}")

    def _exit(self, argument: str) -> None:
        self._is_over = True


_COMMANDS: dict[str, tuple[str, str, Callable[[Chat, str], None]]] = {
    "help": ("", "this list", Chat._help),
    "clear": ("", "forget the conversation", Chat._clear),
    "system": ("TEXT", 'set the system message; "" is an empty one', Chat._system),
    "stats": ("", "speed of the last reply, context used", Chat._show_stats),
    "exit": ("", "leave", Chat._exit),
}
