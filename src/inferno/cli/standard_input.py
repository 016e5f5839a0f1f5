"""Standard input as text: hostile until it has proved to be UTF-8."""

from __future__ import annotations

import stat
import sys

from inferno.errors import InvalidText


def is_terminal() -> bool:
    """Tell whether somebody may be typing there."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_text() -> str:
    """Read all of standard input. Raises InvalidText if it is not UTF-8."""
    if sys.stdin is None:
        return ""
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"Standard input: expected UTF-8, found byte 0x{data[error.start]:02x} "
            f"at offset {error.start:,}",
            hint="convert it first, e.g. with iconv",
        ) from error


def holds_unread_data() -> bool:
    """Tell whether a pipe has been filled that nobody reads. False where that cannot be told."""
    if sys.platform == "win32":
        from inferno import windows

        return windows.unread_bytes(0) > 0
    import array
    import fcntl
    import os
    import termios

    waiting_bytes = array.array("i", [0])
    try:
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            fcntl.ioctl(0, termios.FIONREAD, waiting_bytes)
    except OSError:
        return False
    return waiting_bytes[0] > 0
