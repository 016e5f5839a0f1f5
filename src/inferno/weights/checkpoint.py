"""An open checkpoint: a config, named tensors, and what the tokenizer is made from.

Knows nothing of the two container formats, nor of what an architecture does with its tensors.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.excerpt import quoted
from inferno.weights.mapped_file import MappedFile
from inferno.weights.tensor import FORMATS, SUPPORTED_FORMATS, StoredTensor, StridedBytes

RE_FETCH = "the file is cut or damaged; delete it and fetch it again"


class TokenizerFiles(NamedTuple):
    """Where a Hugging Face directory keeps its tokenizer; `path` need not exist."""

    path: Path
    config: Mapping[str, Any]


class Place(NamedTuple):
    """Where a tensor lies: within `nbytes` bytes at `offset` of `file`, in format `format`.

    `strides` and `scales`: see `StoredTensor`.
    """

    file: MappedFile
    offset: int
    nbytes: int
    format: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    scales: Place | None = None


class Checkpoint:
    """An opened model: tensors under Hugging Face names, their bytes still on disk.

    `source` is "gguf" or "safetensors", `bytes` the sum over all tensors. `tokenizer_source` is
    the GGUF metadata, or the `TokenizerFiles` of a directory.
    """

    def __init__(
        self,
        path: Path,
        source: str,
        config: ModelConfig,
        places: Mapping[str, Place],
        *,
        files: list[MappedFile],
        tokenizer_source: TokenizerFiles | Mapping[str, Any],
        chat_template: str | None,
        rope_interleaved: frozenset[str] = frozenset(),
    ) -> None:
        self.path = path
        self.source = source
        self.config = config
        self.chat_template = chat_template
        self.tokenizer_source = tokenizer_source
        self.bytes = sum(FORMATS[p.format].nbytes(p.shape) for p in places.values())
        self.tensors: Mapping[str, StoredTensor] = {
            name: StoredTensor(
                name,
                place.shape,
                place.format,
                place.file.view(place.offset, place.nbytes),
                name in rope_interleaved,
                place.strides,
                _scales(place.scales),
            )
            for name, place in places.items()
        }
        self._places = places
        self._files = files

    def tensor(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        """Return the tensor `name`, having checked that it is there and has `shape`.

        Raises:
            InvalidCheckpoint: it is missing, or its shape contradicts the config.
        """
        stored = self.tensors.get(name)
        if stored is None:
            names = itertools.islice(self.tensors, 10_000)  # bounds the search in hostile files
            close = difflib.get_close_matches(name, names, n=3)
            raise InvalidCheckpoint(
                f"Tensor {quoted(name)} is missing from the checkpoint",
                hint=f"close names: {', '.join(map(quoted, close))}"
                if close
                else f"none of the {len(self.tensors):,} tensors has a similar name; "
                f"is this a {self.config.model_type} checkpoint?",
            )
        if stored.shape != shape:
            c = self.config
            where = "config.json" if self.source == "safetensors" else "the GGUF metadata"
            raise InvalidCheckpoint(
                f"Tensor {quoted(name)}: expected shape {shape}, found {stored.shape}",
                hint=f"{where} says hidden_size = {c.hidden_size}, intermediate_size = "
                f"{c.intermediate_size}, num_attention_heads = {c.num_attention_heads}, "
                f"num_key_value_heads = {c.num_key_value_heads}, head_dim = {c.head_dim}, "
                f"vocab_size = {c.vocab_size}"
                + (f", num_experts = {c.num_experts}" if c.num_experts else "")
                + ". Are the two from the same model?",
            )
        return stored

    def release(self, tensor: StoredTensor) -> None:
        """Let the kernel drop the pages of `tensor`; reading it again fetches them from disk.

        Raises:
            InvalidCheckpoint: its file has been cut meanwhile.
        """
        place = self._places[tensor.name]
        place.file.release(place.offset, place.nbytes)

    def close(self) -> None:
        """Drop the tensors. Views that are still in use keep the map alive until they die."""
        self.tensors = {}
        for file in self._files:
            file.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, {self.source}, {len(self.tensors)} tensors)"


def _scales(place: Place | None) -> StridedBytes | None:
    if place is None:
        return None
    return StridedBytes(place.file.view(place.offset, place.nbytes), place.strides[0])


def check_formats(places: Mapping[str, Place]) -> None:
    """Refuse formats that have no kernels, naming the first tensor that is stored so.

    Raises:
        UnsupportedModel: a tensor is in a format outside `SUPPORTED_FORMATS`.
    """
    for name, place in places.items():
        if place.format not in SUPPORTED_FORMATS:
            raise UnsupportedModel(
                f"Tensor {quoted(name)} is stored as {place.format}, which is not supported "
                f"(supported: {', '.join(SUPPORTED_FORMATS)})",
                hint="pick another file of the same model, for example its Q4_K_M or Q8_0 GGUF"
                if FORMATS[place.format].ggml_id is not None
                else "pick an unquantized version of the model, or its Q4_K_M or Q8_0 GGUF",
            )


def check_overlaps(file: MappedFile, places: Mapping[str, Place]) -> list[str]:
    """Return the names in the order of their bytes in `file`, which no two may share.

    Raises:
        InvalidCheckpoint: two tensors overlap.
    """
    order = sorted(places, key=lambda name: (places[name].offset, places[name].nbytes))
    for before, after in itertools.pairwise(order):
        end = places[before].offset + places[before].nbytes
        if places[after].offset < end:
            raise InvalidCheckpoint(
                f"`{file.path.name}`: tensor {quoted(after)}: expected to begin at byte {end:,} "
                f"or later, where {quoted(before)} ends, found {places[after].offset:,}",
                hint=RE_FETCH,
            )
    return order


# What people really have on disk when a model file does not begin as one.
_OTHER_BEGINNINGS = {
    b"version https://git-lfs": "this is a Git LFS pointer to the file; run `git lfs pull`",
    b"<": "this looks like a web page; the download went to the wrong address",
    b"PK\x03\x04": "this is a zip archive or a PyTorch checkpoint; convert it to safetensors",
    b"tjgg": "this is a file from before GGUF; fetch the model as GGUF",
    b"lmgg": "this is a file from before GGUF; fetch the model as GGUF",
    b"fmgg": "this is a file from before GGUF; fetch the model as GGUF",
}


def hint_for_beginning(beginning: bytes) -> str:
    """Guess from its first bytes what a file is that is no checkpoint."""
    for start, hint in _OTHER_BEGINNINGS.items():
        if beginning.startswith(start):
            return hint
    return RE_FETCH
