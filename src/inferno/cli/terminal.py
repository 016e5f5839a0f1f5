"""The line where a message is typed: history, several lines, completion, Ctrl-C and Ctrl-D.

Knows nothing of models; a message is text.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT = ">>> "
CONTINUATION = "... "
PLACEHOLDER = "Send a message (/help for help)"
QUOTES = '"""'


class Terminal:
    """Reads messages from the terminal; the file `history` keeps them, if it can be written.

    `on_draft` hears of a message while it is typed.
    """

    def __init__(
        self,
        history: Path,
        completions: Sequence[str] = (),
        on_draft: Callable[[str], None] | None = None,
    ) -> None:
        self._session: PromptSession[str] = PromptSession(
            message=PROMPT,
            multiline=True,
            prompt_continuation=CONTINUATION,
            placeholder=FormattedText([("ansibrightblack", PLACEHOLDER)]),
            history=_open_history(history),
            completer=WordCompleter(list(completions), sentence=True),
            complete_while_typing=False,
            key_bindings=_key_bindings(),
        )
        self._was_interrupted = False
        if on_draft is not None:
            self._session.default_buffer.on_text_changed += lambda buffer: on_draft(buffer.text)

    def read(self, default: str = "") -> str | None:
        """Return a message, never blank, edited from `default`; None when the user leaves."""
        while True:
            try:
                text = unquoted(self._session.prompt(default=default))
            except KeyboardInterrupt:
                if self._was_interrupted:
                    return None
                self._was_interrupted = True
                print("(Ctrl-C again or Ctrl-D leaves)")
                default = ""
                continue
            except EOFError:
                return None
            self._was_interrupted = False
            if text.strip():
                return text
            default = ""


def is_open(text: str) -> bool:
    '''Tell whether `text` starts with """ and the closing """ is still to come.'''
    if not text.startswith(QUOTES):
        return False
    return not text[len(QUOTES) :].rstrip().endswith(QUOTES)


def unquoted(text: str) -> str:
    '''Return `text` without the """ around it, if they are there.'''
    if not text.startswith(QUOTES):
        return text
    return text[len(QUOTES) :].rstrip().removesuffix(QUOTES).strip("\n")


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()
    # Elsewhere, as in a Ctrl-R search, the keys keep their usual meaning.
    in_message = has_focus(DEFAULT_BUFFER)

    @bindings.add("enter", filter=in_message)
    def send(event: KeyPressEvent) -> None:
        if is_open(event.current_buffer.text):
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter", filter=in_message)
    def break_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c", filter=in_message)
    @bindings.add("<sigint>", filter=in_message)
    def discard(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return bindings


class _MessageHistory(FileHistory):
    def store_string(self, string: str) -> None:
        # A full disk, or a paste that is no UTF-8, costs a line of history and not the chat.
        with contextlib.suppress(OSError, UnicodeError):
            super().store_string(string)


def _open_history(path: Path) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only its owner should read what was said. O_NONBLOCK: a named pipe would wait for others.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        finally:
            os.close(descriptor)
    except OSError:
        is_file = False
    return _MessageHistory(str(path)) if is_file else InMemoryHistory()
