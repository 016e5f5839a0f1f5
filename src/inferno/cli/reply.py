"""A reply on its way out: streamed as it comes, stopped by Ctrl-C, and its figures."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from inferno.cli.style import printable

if TYPE_CHECKING:
    from inferno import Generation, Stats

STATS = (
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "prefill_seconds",
    "decode_seconds",
    "drafted",
    "accepted",
)


def stream(generation: Generation) -> Iterator[str]:
    """Write the pieces to stdout as they come, and yield each once it is out."""
    is_terminal = sys.stdout.isatty()
    for piece in generation:
        sys.stdout.write(printable(piece) if is_terminal else piece)
        sys.stdout.flush()
        yield piece


def answer(generation: Generation) -> None:
    """Write the whole reply to stdout, streamed, with a newline at its end."""
    last = ""
    for piece in stream(generation):
        last = piece or last
    if not last.endswith("\n"):
        sys.stdout.write("\n")


class Interruption:
    """Whether Ctrl-C was pressed."""

    happened = False


@contextmanager
def cancelled_by_interrupt(generation: Generation) -> Iterator[Interruption]:
    """Make Ctrl-C cancel `generation` between two tokens; a second one interrupts at once.

    An exception thrown by the signal could leave the session half-way through an update.
    """
    interruption = Interruption()

    def cancel(signum: int, frame: FrameType | None) -> None:
        if interruption.happened:
            raise KeyboardInterrupt
        interruption.happened = True
        generation.cancel()

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@contextmanager
def silent_keyboard() -> Iterator[None]:
    """Keep what is typed meanwhile out of the reply; it waits for the next prompt."""
    if sys.platform == "win32":
        yield  # a key shows when it is read there, not when it is pressed
        return
    import termios

    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError):  # no terminal
        yield
        return
    quiet = [*before]
    quiet[3] &= ~(termios.ECHO | termios.ICANON)  # keys go to the next reader as they are
    termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def stats_dict(stats: Stats) -> dict[str, Any]:
    """Return the figures by name, for JSON."""
    return {name: getattr(stats, name) for name in STATS}


def stats_line(stats: Stats) -> str:
    """Return the figures of one reply on one line."""
    prefilled = stats.prompt_tokens - stats.cached_tokens
    cached = f" ({stats.cached_tokens} cached)" if stats.cached_tokens else ""
    generated = stats.generated_tokens
    parts = [
        f"prompt {stats.prompt_tokens} tokens{cached}, {_rate(prefilled, stats.prefill_seconds)}",
        f"reply {generated} tokens, {_rate(generated, stats.decode_seconds)}",
    ]
    if stats.drafted:
        parts.append(f"speculation {stats.accepted} of {stats.drafted} drafted tokens accepted")
    return " · ".join(parts)


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f} tok/s" if seconds > 0 else "- tok/s"
