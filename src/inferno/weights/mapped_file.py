"""A file, mapped read-only: bytes on demand, pages handed back when asked.

Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from inferno.errors import InvalidCheckpoint, ModelNotFound, OutOfMemory
from inferno.weights.tensor import Bytes


class MappedFile:
    """Map the regular file `path`. `map` is what parsers read, `size` its length in bytes.

    The file must not be cut short by others while it is mapped; growing or replacing it is fine.
    (Windows refuses all three, and to delete it.)

    Raises:
        ModelNotFound: there is no such file, or it may not be read.
        InvalidCheckpoint: it is empty, or not a regular file.
        OutOfMemory: the address space has no room for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # O_NONBLOCK: opening a named pipe would otherwise wait for a writer for ever.
            descriptor = os.open(
                path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            )
        except (OSError, ValueError) as error:
            raise ModelNotFound(f"Cannot open `{path}`: {_reason(error)}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidCheckpoint(f"`{path}`: expected a regular file")
            if status.st_size == 0:
                raise InvalidCheckpoint(
                    f"`{path}`: expected a checkpoint, found an empty file",
                    hint="the download never finished; fetch the file again",
                )
            self.map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            self.size = len(self.map)
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidCheckpoint):
                raise
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise OutOfMemory(
                    f"`{path}`: expected room for a map of {status.st_size:,} bytes, found none",
                    hint="raise the limit on address space (ulimit -v), or pick a smaller model",
                ) from None
            raise ModelNotFound(f"Cannot map `{path}`: {_reason(error)}") from None
        finally:
            os.close(descriptor)

    def view(self, offset: int, nbytes: int) -> Bytes:
        """Return bytes [offset, offset + nbytes) as a read-only view, without a copy."""
        return np.frombuffer(self.map, np.uint8, nbytes, offset)

    def release(self, offset: int, nbytes: int) -> None:
        """Tell the kernel that the whole pages within the range are not needed any more.

        Raises:
            InvalidCheckpoint: the file has been cut; what was read, or would be next, is not there.
        """
        if self.map.closed:
            return
        found = self.map.size()  # of the file, unlike the length of the map
        if found < self.size:
            raise InvalidCheckpoint(
                f"`{self.path}`: expected {self.size:,} bytes, as when it was opened, "
                f"found {found:,}",
                hint="load it again once nobody writes to it",
            )
        if sys.platform == "win32":
            return  # which takes pages back by itself
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            with suppress(OSError):  # advice only
                self.map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        """Unmap, or leave it to the last view that is still alive."""
        with suppress(BufferError):
            self.map.close()


@contextmanager
def closed_on_error() -> Iterator[list[MappedFile]]:
    """Yield a list for the files that a reader opens; they are closed if it raises."""
    files: list[MappedFile] = []
    try:
        yield files
    except BaseException:
        for file in files:
            file.close()
        raise


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
