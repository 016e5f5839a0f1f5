"""A file as text: hostile until it has proved to be UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

from inferno.cli import standard_input
from inferno.errors import InvalidOption, InvalidText


def read_text(flag: str, name: str) -> str:
    """Read the file that `flag` names; `-` is standard input.

    Raises:
        InvalidOption: it cannot be read.
        InvalidText: it is not UTF-8.
    """
    if name == "-":
        return standard_input.read_text()
    try:
        data = Path(name).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidOption(
            f"`{flag}`: expected a file of text, found: {name}: {reason}",
            hint=f"`{flag} -` reads standard input",
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"{os.path.basename(name)}: expected UTF-8, found byte 0x{data[error.start]:02x} "
            f"at offset {error.start:,}",
            hint="convert it first, e.g. with iconv",
        ) from error
