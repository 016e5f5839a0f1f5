"""Where figures come from: the CPU, the versions, the commit, the day, the command.

Figures without these cannot be compared with later ones.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import date
from importlib import metadata
from pathlib import Path

import inferno
from inferno import machine

LIBRARIES = ("numpy", "tokenizers")


def provenance(program: str, arguments: Sequence[str]) -> dict[str, object]:
    """Return all of it as plain data; `arguments` are the command line's after `program`."""
    # Where a file lies on one machine tells others nothing.
    words = [
        Path(word).name if word.startswith("~") or os.path.isabs(word) else word
        for word in arguments
    ]
    return {
        "command": shlex.join([*program.split(), *words]),
        "date": date.today().isoformat(),
        "version": inferno.__version__,
        "commit": commit(Path(inferno.__file__).parents[2]),
        "cpu": machine.cpu_name(),
        "cpu_flags": machine.cpu_flags(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
    }


def commit(folder: Path) -> str | None:
    """Return the commit that `folder` has checked out, with `-dirty` if files differ from it.

    None where the package was installed from elsewhere, or git is missing.
    """
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        # `--exclude` so that a tag is not printed in the place of the commit.
        done = subprocess.run([*command, "--exclude", "*"], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None
