"""The folder that fetched files are kept in: where it is, one writer at a time, what fails.

Knows nothing of where files come from.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from inferno.errors import DownloadFailed, InvalidOption
from inferno.excerpt import shown

Progress = Callable[[str, int, int], None]
"""Called as progress(what, done_bytes, total_bytes); total_bytes is 0 while it is not known."""

CHUNK_BYTES = 1 << 20

# What the disk may say no with, and what to do about it.
NO_ROOM = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "allow larger files (ulimit -f)",
}


def cache_folder() -> Path:
    """Return the folder for downloads: `$INFERNO_HOME`, else in the platform's cache folder.

    Raises:
        InvalidOption: INFERNO_HOME begins with the `~` of nobody, or in a folder that is gone.
    """
    home = os.environ.get("INFERNO_HOME")
    if home:
        try:
            return Path(home).expanduser().absolute()
        except (RuntimeError, OSError) as error:
            raise InvalidOption(
                f"INFERNO_HOME: expected a folder, found {shown(home)} ({error})"
            ) from None
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("inferno", appauthor=False))


def models_folder() -> Path:
    """Return where models lie that are ours alone; the hub's and Ollama's stay in their caches."""
    return cache_folder() / "models"


def check_room(model: str, folder: Path, needed: int, variable: str = "INFERNO_HOME") -> None:
    """Compare what is to be written with what is free. `variable` moves `folder` elsewhere.

    Raises:
        DownloadFailed: there is too little.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadFailed(
            f"Model `{model}`: expected {needed / 1e6:,.0f} MB free in {folder}, "
            f"found {free / 1e6:,.0f} MB",
            hint=f"free some space, or set {variable} to a folder on another disk",
        )


@contextlib.contextmanager
def disk_errors(folder: Path, variable: str = "INFERNO_HOME") -> Iterator[None]:
    """Explain what the disk under `folder` refuses. `variable` moves it elsewhere."""
    try:
        yield
    except DownloadFailed:
        raise
    except OSError as error:
        remedy = NO_ROOM.get(error.errno or 0, "check the folder's permissions")
        raise DownloadFailed(
            f"Cache `{folder}`: expected a folder to write to, found: {error.strerror or error}",
            hint=f"{remedy}, or set {variable} to another folder",
        ) from error


@contextlib.contextmanager
def lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock, waiting for its holder. It vanishes with the holder's process."""
    # O_NONBLOCK, and read as well as written: a named pipe would otherwise wait for a reader.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags, 0o666), "r+b", buffering=0) as file:
        if not _try_lock(file.fileno()):
            progress("waiting for another process that is fetching it", 0, 0)
            _wait_for_lock(file.fileno())
        yield


if sys.platform == "win32":
    import msvcrt

    _RETRY_SECONDS = 0.1

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EBADF, errno.EINVAL):  # no file, or a disk that has no locks
                raise
            return False
        return True

    def _wait_for_lock(descriptor: int) -> None:
        # LK_LOCK waits, for ten seconds in which Ctrl-C does nothing.
        while not _try_lock(descriptor):
            time.sleep(_RETRY_SECONDS)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait_for_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
