"""Models of the Hugging Face hub, in the cache that all of its programs share.

The `huggingface_hub` library finds, authorizes and transfers; its settings (HF_TOKEN, HF_ENDPOINT,
HF_HUB_OFFLINE, HF_HOME) hold. A file gets its name in the cache only after its bytes have been
compared with the hash that the hub lists for it, and until then it is a `.partial` beside it that
the next attempt goes on with. Knows nothing of what is inside a model file.

The layout of the cache is described in the library's guide "Understand caching": `blobs` by hash,
`snapshots/COMMIT` of links to them, `refs/main` with the commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from inferno.errors import (
    AccessDenied,
    DownloadFailed,
    InfernoError,
    InvalidCheckpoint,
    InvalidOption,
    ModelNotFound,
)
from inferno.excerpt import shown
from inferno.file_name import is_file_name
from inferno.hub.cache import CHUNK_BYTES, NO_ROOM, Progress, check_room, lock
from inferno.hub.selection import INDEX, Choice, choose, label_of, shards_of

MAX_INDEX_BYTES = 64 << 20  # real ones have some 100 KB
MAX_FILE_BYTES = 50_000_000_000  # what the hub hands out over plain HTTP

_HOSTS = re.compile(
    r"(?:https?://)?(?:hf\.co|huggingface\.co)(?:/(?P<rest>.*))?", re.IGNORECASE | re.DOTALL
)
_REPOSITORY = r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}"
_REFERENCE = re.compile(
    rf"(?P<repository>{_REPOSITORY}?)"
    r"(?::(?P<wanted>[^:\0\\]+)|/(?:blob|resolve)/main/(?P<file>[^\0\\?]+)(?:\?.*)?)?/?",
    re.ASCII,
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Reference(NamedTuple):
    """A repository, and the file or type that is wanted of it; "" for the one it has."""

    repository: str
    wanted: str = ""

    @property
    def name(self) -> str:
        return f"hf.co/{self.repository}" + (f":{self.wanted}" if self.wanted else "")


class _File(NamedTuple):
    """A file as the hub lists it; `etag` is its SHA-256 if it is large, else its git id."""

    name: str
    bytes: int
    etag: str


class _Listing(NamedTuple):
    commit: str
    files: dict[str, _File]
    licence: str


def parse(name: str) -> Reference | None:
    """Return what `hf.co/org/repo[:file or type]` refers to; None for a name of another kind.

    Raises:
        InvalidOption: it begins so, and goes on in a way that no repository is called.
    """
    host = _HOSTS.fullmatch(name)
    if host is None:
        return None
    found = _REFERENCE.fullmatch(host["rest"] or "")
    wanted = (found["wanted"] or found["file"] or "") if found else ""
    if found is None or ".." in wanted.split("/"):
        raise InvalidOption(
            f"Model {shown(name)}: expected hf.co/ORG/REPO, hf.co/ORG/REPO:FILE.gguf or "
            "hf.co/ORG/REPO:TYPE",
            hint="for example hf.co/HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:Q8_0",
        )
    return Reference(found["repository"], wanted)


def is_repository(name: str) -> bool:
    """Tell whether `name` looks like a repository that was given without its host."""
    return re.fullmatch(rf"{_REPOSITORY}(?::[^:/]+)?", name, re.ASCII) is not None


# ---- what is here ------------------------------------------------------------------------------


def cached(reference: Reference) -> Path | None:
    """Return the model's file or directory if all of it is in the cache. Asks no network."""
    snapshot = _snapshot(reference.repository)
    if snapshot is None:
        return None
    with contextlib.suppress(InfernoError):  # what is missing here, the hub may have
        choice = choose(reference.repository, _files_in(snapshot), reference.wanted)
        if choice.entry:
            return snapshot / choice.entry
        shards = _shards(snapshot, choice)
        if all((snapshot / shard).is_file() for shard in shards):
            return snapshot
    return None


def stored() -> Iterator[tuple[Reference, Path, list[Path]]]:
    """Yield the models in the cache: what each can be asked for by, where it opens, its files."""
    folder = _cache()
    if not folder.is_dir():
        return
    for storage in sorted(folder.glob("models--*--*")):
        repository = storage.name.removeprefix("models--").replace("--", "/", 1)
        snapshot = _snapshot(repository)
        if snapshot is None or not is_repository(repository):
            continue
        files = _files_in(snapshot)
        ggufs = sorted(name for name in files if name.lower().endswith(".gguf"))
        wanted = dict.fromkeys(label_of(name) for name in ggufs) if ggufs else {"": None}
        for label in wanted:
            reference = Reference(repository, label)
            path = cached(reference)
            if path is not None:
                yield reference, path, _paths(snapshot, reference)


def repository_of(path: Path) -> str | None:
    """Return the repository whose snapshot `path` is, or lies in; None for other paths."""
    with contextlib.suppress(ValueError):
        folder = path.absolute().relative_to(_cache().absolute()).parts[0]
        repository = folder.removeprefix("models--").replace("--", "/", 1)
        return repository if is_repository(repository) else None
    return None


def remove(reference: Reference) -> int:
    """Delete the model's files from the cache and return the bytes that were freed.

    A blob that another snapshot of the repository shows stays.

    Raises:
        ModelNotFound: it is not there.
    """
    storage = _storage(reference.repository)
    snapshot = _snapshot(reference.repository)
    if snapshot is None or cached(reference) is None:
        raise ModelNotFound(f"Model `{reference.name}`: expected it in {_cache()}, found it not")
    freed = 0
    for path in _paths(snapshot, reference):
        blob, size = path.resolve(), _size(path)
        path.unlink()
        if not blob.exists():  # where there are no links, the snapshot holds the file itself
            freed += size
        elif blob.is_relative_to(storage.resolve()) and blob not in _shown(storage):
            freed += size
            blob.unlink()
    return freed + remove_partial(reference)


def remove_partial(reference: Reference) -> int:
    """Delete what downloads that ended early left of a repository; return the bytes freed."""
    storage = _storage(reference.repository)
    freed = 0
    for partial in storage.glob("blobs/*.partial"):
        freed += _size(partial)
        partial.unlink()
    if storage.is_dir() and not _shown(storage):
        shutil.rmtree(storage)
    return freed


def _shown(storage: Path) -> set[Path]:
    """Return the blobs that snapshots still show."""
    return {path.resolve() for path in storage.glob("snapshots/*/**/*") if path.is_file()}


def _paths(snapshot: Path, reference: Reference) -> list[Path]:
    choice = choose(reference.repository, _files_in(snapshot), reference.wanted)
    return [snapshot / name for name in dict.fromkeys((*choice.files, *_shards(snapshot, choice)))]


def _shards(snapshot: Path, choice: Choice) -> list[str]:
    if choice.entry or INDEX not in choice.files:
        return []
    return shards_of(_weight_map(snapshot / INDEX))


def _weight_map(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_INDEX_BYTES:
            return {}
        index = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # `weights` will say what is wrong with it
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    return weight_map if isinstance(weight_map, dict) else {}


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _storage(repository: str) -> Path:
    return _cache() / f"models--{repository.replace('/', '--')}"


def _snapshot(repository: str) -> Path | None:
    """Return the folder of the commit that `main` was when it was last fetched."""
    storage = _storage(repository)
    try:
        commit = (storage / "refs" / "main").read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = storage / "snapshots" / commit
    return snapshot if _COMMIT.fullmatch(commit) and snapshot.is_dir() else None


def _files_in(snapshot: Path) -> list[str]:
    """List the files of a snapshot, without links that lead nowhere."""
    return [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]


# ---- what the hub has --------------------------------------------------------------------------


def fetch(reference: Reference, progress: Progress) -> Path:
    """Bring the cache up to date with the hub and return the model's file or directory.

    Raises:
        ModelNotFound: no such repository, or nothing in it that is meant.
        AccessDenied: its licence is to be accepted first, or a token is needed.
        DownloadFailed: network or disk gave up, or the bytes are not those the hub lists.
        InvalidCheckpoint: an index names a file that the repository does not have.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise DownloadFailed(
            f"Model `{reference.name}`: HF_HUB_OFFLINE is set, expected it in {_cache()}, "
            "found it not",
            hint="unset HF_HUB_OFFLINE, or fetch it where there is a network and copy the cache",
        )
    with _hub_errors(reference):
        listing = _listing(reference)
    choice = choose(reference.repository, listing.files, reference.wanted)
    download = _Download(reference, listing, progress)
    with _hub_errors(reference), _silent_library():
        names = list(choice.files)
        if INDEX in names and not choice.entry:
            # It says what else there is to fetch; until then nobody knows how much that is.
            download.run([listing.files[INDEX]], is_shown=False)
            shards = shards_of(_weight_map(download.snapshot / INDEX))
            for shard in shards:
                if shard not in listing.files:
                    raise InvalidCheckpoint(
                        f"Model `{reference.name}`: `{INDEX}` names {shown(shard)}, which the "
                        "repository does not have",
                        hint="the repository is incomplete; look for another of the same model",
                    )
            names += shards
        download.run([listing.files[name] for name in names])
        download.publish()
    return download.snapshot / choice.entry if choice.entry else download.snapshot


def _listing(reference: Reference) -> _Listing:
    """Ask the hub what the repository holds now."""
    from huggingface_hub import HfApi, constants

    info = HfApi(endpoint=constants.ENDPOINT).model_info(
        reference.repository, files_metadata=True, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
    )
    files = {}
    for sibling in info.siblings or ():
        etag = sibling.lfs.sha256 if sibling.lfs is not None else sibling.blob_id
        size = sibling.lfs.size if sibling.lfs is not None else sibling.size
        known = isinstance(etag, str) and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", etag)
        # A name may not lead out of the snapshot, nor a size be nonsense.
        is_possible = all(map(is_file_name, sibling.rfilename.split("/")))
        if known and isinstance(size, int) and size >= 0 and is_possible:
            files[sibling.rfilename] = _File(sibling.rfilename, size, cast("str", etag))
    commit = info.sha
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise DownloadFailed(
            f"Model `{reference.name}`: expected the hub to name a commit, found {shown(commit)}",
            hint="is HF_ENDPOINT a hub?",
        )
    licence = info.card_data.get("license") if info.card_data is not None else None
    return _Listing(commit, files, licence if isinstance(licence, str) else "")


class _Download:
    """Fetches files of one commit, a hash checked for each, and counts the bytes of all."""

    def __init__(self, reference: Reference, listing: _Listing, progress: Progress) -> None:
        self._reference = reference
        self._listing = listing
        self._storage = _storage(reference.repository)
        self.snapshot = self._storage / "snapshots" / listing.commit
        licence = f" ({listing.licence})" if listing.licence else ""
        self._what = f"fetching {reference.name}{licence}"
        self._progress = progress
        self._done = self._total = 0
        self._is_shown = True

    def run(self, files: Iterable[_File], *, is_shown: bool = True) -> None:
        """Fetch what is not there yet."""
        self._is_shown = is_shown
        missing = [file for file in files if not (self.snapshot / file.name).is_file()]
        for folder in (self._storage / "blobs", self._locks):
            folder.mkdir(parents=True, exist_ok=True)
        self._total += sum(file.bytes for file in missing)
        needed = sum(file.bytes - _size(self._partial(file)) for file in missing)
        check_room(self._reference.name, self._storage, needed, "HF_HOME")
        for file in missing:
            if file.bytes > MAX_FILE_BYTES:
                raise DownloadFailed(
                    f"Model `{self._reference.name}`: expected files of up to "
                    f"{MAX_FILE_BYTES / 1e9:.0f} GB, found {file.name} "
                    f"of {file.bytes / 1e9:.0f} GB",
                    hint=f"fetch it with `hf download {self._reference.repository} {file.name}`; "
                    "it is then found in the cache",
                )
            self._fetch(file)

    def publish(self) -> None:
        """Make this commit what the repository's name means from now on."""
        refs = self._storage / "refs"
        refs.mkdir(exist_ok=True)
        new = refs / f".main.{os.getpid()}"
        new.write_text(self._listing.commit, "ascii")
        os.replace(new, refs / "main")

    @property
    def _locks(self) -> Path:
        return _cache() / ".locks" / self._storage.name  # the library's own place for them

    def _blob(self, file: _File) -> Path:
        return self._storage / "blobs" / file.etag

    def _partial(self, file: _File) -> Path:
        return self._storage / "blobs" / f"{file.etag}.partial"

    def _fetch(self, file: _File) -> None:
        from huggingface_hub import constants, hf_hub_download

        blob, shown_as, before = self._blob(file), self.snapshot / file.name, self._done
        # One lock a blob, and the library's: whoever waited finds the blob there.
        with lock(self._locks / f"{file.etag}.lock", self._progress):
            if not blob.exists() and not shown_as.is_file():
                self._transfer(file)
                self._verify(file)
                os.replace(self._partial(file), blob)
        # The blob is there, so all that is left for the library is to show it in the snapshot.
        hf_hub_download(
            self._reference.repository,
            file.name,
            revision=self._listing.commit,
            endpoint=constants.ENDPOINT,
            cache_dir=_cache(),
        )
        if shown_as.is_file() and not shown_as.is_symlink():
            # Where links are not allowed (Windows, by default) it was copied: one is enough.
            with lock(self._locks / f"{file.etag}.lock", self._progress):
                blob.unlink(missing_ok=True)
        self._done = before + file.bytes
        self._show()

    def _transfer(self, file: _File) -> None:
        """Fill the partial file, from where an earlier attempt left it."""
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        partial = self._partial(file)
        if _size(partial) > file.bytes or partial.is_symlink():
            partial.unlink()
        url = hf_hub_url(
            self._reference.repository,
            file.name,
            revision=self._listing.commit,
            endpoint=constants.ENDPOINT,
        )
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        with open(descriptor, "r+b") as output:
            start = output.seek(0, os.SEEK_END)
            self._done += start
            http_get(
                url,
                output,
                resume_size=start,
                headers=build_hf_headers(),
                expected_size=file.bytes,
                displayed_filename=file.name,
                tqdm_class=_bar(self._advance),
            )
            output.flush()
            # Later starts look at the name alone: after a power cut the bytes must be there too.
            os.fsync(output.fileno())

    def _advance(self, count: int) -> None:
        self._done += count
        self._show()

    def _show(self) -> None:
        if self._is_shown:
            self._progress(self._what, min(self._done, self._total), self._total)

    def _verify(self, file: _File) -> None:
        partial = self._partial(file)
        found_bytes = _size(partial)
        with open(partial, "rb") as content:
            found = _hash(content, file, found_bytes)
        if (found_bytes, found) != (file.bytes, file.etag):
            partial.unlink()
            raise DownloadFailed(
                f"Model `{self._reference.name}`: {file.name}: expected {file.bytes:,} bytes with "
                f"hash {file.etag}, found {found_bytes:,} with {found}",
                hint="nothing of it was kept; try again",
            )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _hash(content: BinaryIO, file: _File, count: int) -> str:
    """Return the hash of a kind with the file's etag: git's id of a blob, or the SHA-256."""
    if len(file.etag) == 40:
        digest = hashlib.sha1(b"blob %d\0" % count, usedforsecurity=False)
    else:
        digest = hashlib.sha256()
    while chunk := content.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _bar(advance: Callable[[int], None]) -> Any:
    """Return a class that the library takes for a progress bar, and that only counts."""

    class Bar:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def update(self, count: float | None = 1) -> None:
            advance(int(count or 0))

        def close(self) -> None:
            pass

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar


@contextlib.contextmanager
def _silent_library() -> Iterator[None]:
    """Keep the library from warning of transfers that it goes on with: the bar shows them.

    And of disks without links, on which a file is kept once all the same.
    """
    from huggingface_hub import constants

    logger = logging.getLogger("huggingface_hub")
    before = logger.level, constants.HF_HUB_DISABLE_SYMLINKS_WARNING
    logger.setLevel(logging.ERROR)
    constants.HF_HUB_DISABLE_SYMLINKS_WARNING = True
    try:
        yield
    finally:
        logger.setLevel(before[0])
        constants.HF_HUB_DISABLE_SYMLINKS_WARNING = before[1]


@contextlib.contextmanager
def _hub_errors(reference: Reference) -> Iterator[None]:
    """Say in our words what the library, the network or the disk said no to."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
    )

    model, repository = f"Model `{reference.name}`", reference.repository
    try:
        yield
    except InfernoError:
        raise
    except GatedRepoError as error:
        raise AccessDenied(
            f"{model}: the repository is gated: its licence is to be accepted first",
            hint=f"accept it on {constants.ENDPOINT}/{repository}, then set HF_TOKEN to a token "
            "of that account (or run `hf auth login`)",
        ) from error
    except (RepositoryNotFoundError, RemoteEntryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"{model}: no such repository on {constants.ENDPOINT}",
            hint="check the name; for a private one set HF_TOKEN (or run `hf auth login`)",
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise AccessDenied(
                f"{model}: the hub refuses access ({status})",
                hint="HF_TOKEN may be wrong or expired, or lack the right to read it",
            ) from error
        raise DownloadFailed(
            f"{model}: {constants.ENDPOINT} answered {status}",
            hint="try again later; what has been fetched is kept",
        ) from error
    except OSError as error:
        if error.errno is None:  # the library's own: a transfer that ended early
            raise _connection_failed(model, error) from error
        remedy = NO_ROOM.get(error.errno, "check the folder's permissions")
        raise DownloadFailed(
            f"{model}: cache `{_cache()}`: expected a folder to write to, "
            f"found: {error.strerror or error}",
            hint=f"{remedy}, or set HF_HOME to another folder; what has been fetched is kept",
        ) from error
    except Exception as error:  # the library's HTTP client has a family of its own
        raise _connection_failed(model, error) from error


def _connection_failed(model: str, error: Exception) -> DownloadFailed:
    reason = str(error).splitlines()[0][:200] if str(error) else ""
    return DownloadFailed(
        f"{model}: the transfer failed ({type(error).__name__}: {reason})",
        hint="check the network and its proxy (HTTPS_PROXY, HF_ENDPOINT), and try again: it goes "
        "on where it stopped",
    )
