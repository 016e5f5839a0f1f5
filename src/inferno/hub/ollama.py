"""Models that Ollama has fetched, used where they lie: its manifests say which blob is which.

Nothing is copied, changed or fetched. Of a model its weights are used, a GGUF file with a tokenizer
and chat template of its own; Ollama's template (in another language) and parameters are not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from inferno.errors import InvalidCheckpoint, InvalidOption, ModelNotFound, UnsupportedModel
from inferno.excerpt import shown
from inferno.file_name import is_file_name

PREFIX = "ollama:"
MAX_MANIFEST_BYTES = 1 << 20  # real ones have 1 KB

# Where Ollama's installer for Linux makes its service keep them.
SYSTEM_FOLDER = Path("/usr/share/ollama/.ollama/models")

_REGISTRY, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_NAME = re.compile(r"(?P<path>[\w.-]+(?:/[\w.-]+){0,2})(?::(?P<tag>[\w.-]+))?", re.ASCII)
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_LAYER = "application/vnd.ollama.image."


class Image(NamedTuple):
    """A model of Ollama: where it is described, and the parts of its name."""

    manifest: Path
    host: str
    namespace: str
    model: str
    tag: str

    @property
    def name(self) -> str:
        """Return the name as Ollama lists it, with the prefix that stands for it here."""
        host = "" if self.host == _REGISTRY else f"{self.host}/"
        namespace = "" if not host and self.namespace == _NAMESPACE else f"{self.namespace}/"
        return f"{PREFIX}{host}{namespace}{self.model}:{self.tag}"


def models_folder() -> Path:
    """Return Ollama's folder: `$OLLAMA_MODELS`, else the user's, else that of its service."""
    chosen = os.environ.get("OLLAMA_MODELS")
    if chosen:
        return Path(chosen)
    own = Path(os.path.expanduser("~")) / ".ollama" / "models"
    return SYSTEM_FOLDER if not own.is_dir() and SYSTEM_FOLDER.is_dir() else own


def parse(name: str) -> Image | None:
    """Return the image that `ollama:NAME[:TAG]` names; None for a name of another kind.

    Raises:
        InvalidOption: it begins so, and goes on in a way that no model is called.
    """
    if not name.lower().startswith(PREFIX):
        return None
    found = _NAME.fullmatch(name[len(PREFIX) :])
    parts = found["path"].split("/") if found else []
    if found is None or not all(map(is_file_name, [*parts, found["tag"] or _TAG])):
        raise InvalidOption(
            f"Model {shown(name)}: expected ollama:NAME or ollama:NAME:TAG",
            hint="`ollama list` shows the names",
        )
    host, namespace, model = [_REGISTRY, _NAMESPACE][: 3 - len(parts)] + parts
    tag = found["tag"] or _TAG
    return Image(
        models_folder() / "manifests" / host / namespace / model / tag, host, namespace, model, tag
    )


def stored() -> Iterator[tuple[Image, Path]]:
    """Yield the images whose weights are there, and the blob of each."""
    manifests = models_folder() / "manifests"
    try:
        found = sorted(path for path in manifests.glob("*/*/*/*") if path.is_file())
    except OSError:  # the service's folder may be closed to us
        return
    for path in found:
        image = Image(path, *path.relative_to(manifests).parts)
        try:
            yield image, blob_of(image)
        except (ModelNotFound, InvalidCheckpoint, UnsupportedModel):
            continue


def blob_of(image: Image) -> Path:
    """Return the GGUF file of `image`.

    Raises:
        ModelNotFound: Ollama has no such model, or not its weights.
        InvalidCheckpoint: the manifest is damaged.
        UnsupportedModel: it is not one GGUF file alone.
    """
    try:
        # A folder of somebody else's service can hold anything under that name.
        if image.manifest.stat().st_size > MAX_MANIFEST_BYTES:
            raise _damaged(image, "a manifest", f"{image.manifest.stat().st_size:,} bytes")
        text = image.manifest.read_bytes()
    except OSError as error:
        raise ModelNotFound(
            f"Model `{image.name}`: expected a manifest {image.manifest}, found: {error.strerror}",
            hint=_suggestion(image),
        ) from None
    layers = _layers(image, text)
    models = [layer["digest"] for layer in layers if layer["mediaType"] == f"{_LAYER}model"]
    if any(layer["mediaType"] == f"{_LAYER}adapter" for layer in layers):
        raise UnsupportedModel(f"Model `{image.name}`: adapters (LoRA) are not supported")
    if len(models) != 1:
        raise UnsupportedModel(
            f"Model `{image.name}`: expected one file of weights, found {len(models)}"
        )
    digest = _DIGEST.fullmatch(models[0])
    if digest is None:
        raise _damaged(image, "a SHA-256", shown(models[0]))
    blob = models_folder() / "blobs" / f"sha256-{digest[1]}"
    if not blob.is_file():
        raise ModelNotFound(
            f"Model `{image.name}`: expected its weights in {blob}, found no file",
            hint=f"`ollama pull {image.name.removeprefix(PREFIX)}` fetches it again",
        )
    return blob


def _layers(image: Image, text: bytes) -> list[dict[str, str]]:
    try:
        manifest: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(image, "JSON", "something else") from None
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    if not isinstance(layers, list) or not all(
        isinstance(layer, dict)
        and isinstance(layer.get("mediaType"), str)
        and isinstance(layer.get("digest"), str)
        for layer in layers
    ):
        raise _damaged(image, "layers with a mediaType and a digest", shown(layers))
    return layers


def _damaged(image: Image, expected: str, found: str) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"Model `{image.name}`: {image.manifest}: expected {expected}, found {found}",
        hint=f"`ollama pull {image.name.removeprefix(PREFIX)}` writes it anew",
    )


def _suggestion(image: Image) -> str:
    names = [other.name for other, _ in stored()]
    tags = [name for name in names if name.rpartition(":")[0] == image.name.rpartition(":")[0]]
    if tags:
        return f"did you mean `{tags[0]}`?"
    if names:
        return f"there are: {', '.join(names[:8])}"
    return f"no models of Ollama were found in {models_folder()} (OLLAMA_MODELS)"
