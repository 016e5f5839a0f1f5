"""GGUF, versions 2 and 3, little-endian, in one file or a split set.

Knows the container and which tensor is which; not what an architecture computes. A file is
hostile until checked: no length is used before it is compared with the bytes that remain.

Source: docs/gguf.md of ggml.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.excerpt import quoted, shown
from inferno.weights.checkpoint import (
    RE_FETCH,
    Checkpoint,
    Place,
    check_formats,
    check_overlaps,
    hint_for_beginning,
)
from inferno.weights.expert_stacks import unstacked
from inferno.weights.gguf_names import huggingface_name, is_rope_interleaved
from inferno.weights.mapped_file import MappedFile, closed_on_error
from inferno.weights.tensor import FORMATS

VERSIONS = (2, 3)
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
DEFAULT_ALIGNMENT = 32

# Real files stay far below these: 15 MB of metadata (a vocabulary of 262,144), 100 keys, 2,000
# tensors. They bound what a large file full of nonsense can cost: Python objects are up to ten
# times the size of what they are parsed from.
MAX_METADATA_BYTES = 128 << 20
MAX_ENTRIES = 1 << 16
MAX_STRING_BYTES = 16 << 20
MAX_KEY_BYTES = (1 << 16) - 1  # the specification's limit
MAX_NAME_BYTES = 64  # the specification's limit for tensor names

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TENSOR_PLACE = struct.Struct("<IQ")  # type id, offset within the data section
_BOOL, _STRING, _ARRAY = 7, 8, 9
# Value type id -> the same type for numpy; booleans are bytes that must be 0 or 1.
_NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    _BOOL: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_DTYPES = {number: np.dtype(code) for number, code in _NUMBERS.items()}

_FORMAT_OF_ID = {f.ggml_id: f for f in FORMATS.values() if f.ggml_id is not None}
_SHARD_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file, or all files of a split set given its first.

    Raises:
        ModelNotFound, InvalidCheckpoint, UnsupportedModel: see `open_checkpoint`.
    """
    with closed_on_error() as files:
        return _open(path, files)


def _open(path: Path, files: list[MappedFile]) -> Checkpoint:
    named = _SHARD_NAME.fullmatch(path.name)
    if named and int(named[2]) != 1:
        raise InvalidCheckpoint(
            f"`{path.name}`: expected the first file of a split set, found number {int(named[2])}",
            hint=f"give `{named[1]}-00001-of-{named[3]}.gguf`",
        )
    file = MappedFile(path)
    files.append(file)
    metadata, places = parse(file)
    places |= _other_shards(path, metadata, len(places), files, places)

    renamed: dict[str, Place] = {}
    for gguf_name, place in places.items():
        architecture = str(metadata.get("general.architecture"))
        for name, part in unstacked(huggingface_name(gguf_name, architecture), place):
            if name in renamed:
                raise InvalidCheckpoint(
                    f"`{path.name}`: tensor {quoted(name)} is there twice, once as "
                    f"{quoted(gguf_name)}",
                    hint=RE_FETCH,
                )
            renamed[name] = part
    config = ModelConfig.from_gguf(metadata, {name: p.shape for name, p in renamed.items()})
    check_formats(renamed)
    config = _with_rope_factors(config, renamed)
    if not config.name:
        config = dataclasses.replace(config, name=path.stem)
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise InvalidCheckpoint(
            f"`tokenizer.chat_template`: expected a string, found {shown(template)}", hint=RE_FETCH
        )
    return Checkpoint(
        path,
        "gguf",
        config,
        renamed,
        files=files,
        tokenizer_source=metadata,
        chat_template=template,
        rope_interleaved=frozenset(
            name for name in renamed if is_rope_interleaved(config.architecture, name)
        ),
    )


def _with_rope_factors(config: ModelConfig, places: dict[str, Place]) -> ModelConfig:
    """Move the tensors by which rotary frequencies are to be divided to the config.

    `rope_freqs.weight` is how converters write llama3 scaling; `rope_factors_long.weight` and
    `rope_factors_short.weight` are those of LongRoPE, whose other numbers are metadata.
    """
    names = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
    found = {name: places.pop(name) for name in names if name in places}
    factors = {name: _rope_factors(config, name, place) for name, place in found.items()}
    if all(set(values) == {1.0} for values in factors.values()):
        return config
    scaling: dict[str, Any]
    kind = (config.rope_scaling or {}).get("rope_type")
    if set(factors) == {names[0]} and kind is None:
        scaling = {"rope_type": "frequency_factors", "factors": factors[names[0]]}
    elif set(factors) == set(names[1:]) and kind in (None, "longrope"):
        prefix = f"{config.architecture}.rope.scaling."
        scaling = {
            "rope_type": "longrope",
            "long_factor": factors[names[1]],
            "short_factor": factors[names[2]],
            "original_max_position_embeddings": config.raw.get(prefix + "original_context_length"),
            "attention_factor": config.raw.get(prefix + "attn_factor"),
        }
    else:
        raise UnsupportedModel(
            f"RoPE scaling {shown(kind or 'default')} together with {' and '.join(found)} is not "
            "supported"
        )
    return dataclasses.replace(config, rope_scaling=scaling)


def _rope_factors(config: ModelConfig, name: str, place: Place) -> tuple[float, ...]:
    shape = (config.rotary_dim // 2,)
    if place.format != "f32" or place.shape != shape:
        raise InvalidCheckpoint(
            f"Tensor `{name}`: expected f32 of shape {shape}, "
            f"found {place.format} of shape {place.shape}",
            hint=RE_FETCH,
        )
    factors = place.file.view(place.offset, place.nbytes).view("<f4")
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise InvalidCheckpoint(
            f"Tensor `{name}`: expected positive numbers, found others", hint=RE_FETCH
        )
    return tuple(factors.tolist())


def _other_shards(
    path: Path,
    metadata: Mapping[str, Any],
    num_tensors: int,
    files: list[MappedFile],
    first: Mapping[str, Place],
) -> dict[str, Place]:
    """Open the files after the first of a split set, and return their tensors."""
    count = _shard_number(metadata, "split.count", path, default=1)
    named = _SHARD_NAME.fullmatch(path.name)
    expected = int(named[3]) if named else 1
    if max(count, 1) != expected:
        raise InvalidCheckpoint(
            f"`{path.name}`: expected split.count = {expected} as the name says, found {count}",
            hint=f"the first of {count} files is called `NAME-00001-of-{count:05d}.gguf`"
            if count > 1
            else "the name says that it is part of a split set; was it renamed?",
        )
    if named is None:
        return {}
    _check_shard(path, metadata, count, 0)
    places: dict[str, Place] = {}
    for number in range(1, count):
        shard = path.with_name(f"{named[1]}-{number + 1:05d}-of-{named[3]}.gguf")
        if not shard.is_file():
            raise InvalidCheckpoint(
                f"`{shard.name}` is missing: expected {count} files of a split set, found no "
                f"number {number + 1}",
                hint=f"put it beside the others, in `{path.parent}`",
            )
        file = MappedFile(shard)
        files.append(file)
        its_metadata, its_places = parse(file)
        _check_shard(shard, its_metadata, count, number)
        for name, place in its_places.items():
            if name in first or name in places:
                raise InvalidCheckpoint(
                    f"`{shard.name}`: tensor {quoted(name)} is in an earlier file of the set too",
                    hint="the files are not from the same split; fetch them again",
                )
            places[name] = place
    total = _shard_number(metadata, "split.tensors.count", path, num_tensors + len(places))
    if total != num_tensors + len(places):
        raise InvalidCheckpoint(
            f"`{path.name}`: expected {total} tensors in {count} files, "
            f"found {num_tensors + len(places)}",
            hint="fetch all files of the set again",
        )
    return places


def _check_shard(path: Path, metadata: Mapping[str, Any], count: int, number: int) -> None:
    for key, expected in (("split.count", count), ("split.no", number)):
        found = _shard_number(metadata, key, path, default=-1)
        if found != expected:
            raise InvalidCheckpoint(
                f"`{path.name}`: expected {key} = {expected}, "
                f"found {'none' if found < 0 else found}",
                hint="the files are not from the same split; fetch them again",
            )


def _shard_number(metadata: Mapping[str, Any], key: str, path: Path, default: int) -> int:
    value = metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidCheckpoint(
            f"`{path.name}`: `{key}`: expected an integer, found {shown(value)}", hint=RE_FETCH
        )
    return value


def parse(file: MappedFile) -> tuple[dict[str, Any], dict[str, Place]]:
    """Return the metadata and the tensors of one file, under their GGUF names.

    Raises:
        InvalidCheckpoint: the file breaks the specification anywhere.
        UnsupportedModel: it is big-endian, or of another version.
    """
    return _Parser(file).parse()


class _Parser:
    """A cursor over the head of a file. `at` is the next byte, `end` the first it may not read."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.map = file.map
        self.at = 0
        self.end = min(file.size, MAX_METADATA_BYTES)

    def parse(self) -> tuple[dict[str, Any], dict[str, Place]]:
        self.check_magic()
        num_tensors = self.count("tensors", smallest=32)
        num_keys = self.count("metadata entries", smallest=13)
        metadata: dict[str, Any] = {}
        for index in range(num_keys):
            key = self.string(f"key {index}", MAX_KEY_BYTES)
            if not key or key in metadata:
                raise self.error(f"key {index}", "a new name", quoted(key) if key else "none")
            metadata[key] = self.value(quoted(key))
        return metadata, self.tensors(num_tensors, self.alignment(metadata))

    def check_magic(self) -> None:
        magic = self.map[:4]
        if magic != b"GGUF":
            beginning = self.map[:64]
            raise InvalidCheckpoint(
                f"`{self.file.path}`: expected a GGUF file, found one that begins with "
                f"{beginning[:8]!r}",
                hint=hint_for_beginning(beginning.lstrip()),
            )
        self.at = 4
        version = self.number(_U32, "the version")
        if version & 0xFFFF == 0 and version:
            raise UnsupportedModel(
                f"`{self.file.path.name}`: big-endian GGUF is not supported",
                hint="fetch the ordinary, little-endian file",
            )
        if version == 0:
            raise self.error("the version", "2 or 3", "0")
        if version not in VERSIONS:
            raise UnsupportedModel(
                f"`{self.file.path.name}`: GGUF version {version} is not supported "
                f"(supported: {', '.join(map(str, VERSIONS))})",
                hint="fetch a newer conversion of the model"
                if version == 1
                else "a newer inferno may know this version",
            )

    def tensors(self, count: int, alignment: int) -> dict[str, Place]:
        """Read `count` tensor infos, then check all of them against the data section."""
        infos: dict[str, tuple[int, tuple[int, ...]]] = {}
        for index in range(count):
            name = self.string(f"the name of tensor {index}", MAX_NAME_BYTES)
            what = f"tensor {quoted(name)}"
            if not name or name in infos:
                raise self.error(f"the name of tensor {index}", "a new name", quoted(name))
            rank = self.number(_U32, f"the rank of {what}")
            if not 1 <= rank <= MAX_DIMENSIONS:
                raise self.error(what, f"1 to {MAX_DIMENSIONS} dimensions", f"{rank:,}")
            start = self.take(8 * rank, f"the shape of {what}")
            # ggml counts dimensions from the innermost.
            shape = struct.unpack_from(f"<{rank}Q", self.map, start)[::-1]
            if 0 in shape:
                raise self.error(what, "no dimension of zero", f"shape {shape}")
            start = self.take(_TENSOR_PLACE.size, f"the place of {what}")
            infos[name] = (start, shape)

        data = -(-self.at // alignment) * alignment
        places = {}
        for name, (start, shape) in infos.items():
            format_id, offset = _TENSOR_PLACE.unpack_from(self.map, start)
            what = f"tensor {quoted(name)}"
            format = _FORMAT_OF_ID.get(format_id)
            if format is None:
                raise self.error(what, "a tensor type that ggml knows", f"id {format_id:,}")
            if shape[-1] % format.block:
                raise self.error(
                    what,
                    f"rows of whole {format.name} blocks of {format.block} weights",
                    f"rows of {shape[-1]:,}",
                )
            if offset % alignment:
                raise self.error(what, f"an offset aligned to {alignment}", f"{offset:,}")
            nbytes = format.nbytes(shape)
            room = max(self.file.size - data, 0)
            if offset + nbytes > room:
                raise self.error(
                    what,
                    f"{nbytes:,} bytes of data at offset {offset:,}",
                    f"a data section of {room:,} bytes",
                )
            places[name] = Place(self.file, data + offset, nbytes, format.name, shape)
        check_overlaps(self.file, places)
        return places

    def alignment(self, metadata: Mapping[str, Any]) -> int:
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(value) is not int or value <= 0 or value & (value - 1):
            raise self.error("`general.alignment`", "a power of two", shown(value))
        return value

    def value(self, what: str) -> Any:
        kind = self.number(_U32, f"the type of {what}")
        if kind == _STRING:
            return self.string(what, MAX_STRING_BYTES)
        if kind != _ARRAY:
            return self.numbers(kind, 1, what)[0]
        kind = self.number(_U32, f"the element type of {what}")
        count = self.number(_U64, f"the length of {what}")
        if kind == _ARRAY:
            raise self.error(what, "an array of numbers or strings", "an array of arrays")
        return self.strings(count, what) if kind == _STRING else self.numbers(kind, count, what)

    def numbers(self, kind: int, count: int, what: str) -> list[Any]:
        dtype = _DTYPES.get(kind)
        if dtype is None:
            raise self.error(what, "a value type from 0 to 12", f"{kind:,}")
        start = self.take(count * dtype.itemsize, what)
        values: list[Any] = np.frombuffer(self.map, dtype, count, start).tolist()
        if kind != _BOOL:
            return values
        if not set(values) <= {0, 1}:
            raise self.error(what, "booleans of 0 or 1", f"{max(values)}")
        return [value == 1 for value in values]

    def strings(self, count: int, what: str) -> list[str]:
        """Read `count` strings. A vocabulary has 100,000: the one loop here that must be quick."""
        self.take(8 * count, what)  # each has at least a length
        at = self.at = self.at - 8 * count
        source, end, unpack = self.map, self.end, _U64.unpack_from
        texts: list[str] = []
        append = texts.append
        try:
            for _ in range(count):
                start = at + 8
                at = start + unpack(source, at)[0]
                if at > end:
                    break
                append(source[start:at].decode())
        except struct.error:
            at = start  # even the length of the next string is cut off
        except UnicodeDecodeError:
            what = f"{what}, string {len(texts):,}"
            raise self.error(what, "UTF-8 text", "other bytes") from None
        if len(texts) < count:
            self.at = start - 8
            raise self.cut(at - self.at, f"{what}, string {len(texts):,} of {count:,}")
        self.at = at
        return texts

    def string(self, what: str, limit: int) -> str:
        length = self.number(_U64, f"the length of {what}")
        if length > limit:
            raise self.error(what, f"at most {limit:,} bytes", f"{length:,}")
        start = self.take(length, what)
        try:
            return self.map[start : self.at].decode()
        except UnicodeDecodeError:
            raise self.error(what, "UTF-8 text", "other bytes") from None

    def count(self, what: str, smallest: int) -> int:
        """Read how many `what` follow; each takes at least `smallest` bytes."""
        count = self.number(_U64, f"the number of {what}")
        possible = min(MAX_ENTRIES, (self.end - self.at) // smallest)
        if count > possible:
            raise self.error(f"the number of {what}", f"at most {possible:,}", f"{count:,}")
        return count

    def number(self, layout: struct.Struct, what: str) -> int:
        start = self.take(layout.size, what)
        value: int = layout.unpack_from(self.map, start)[0]
        return value

    def take(self, nbytes: int, what: str) -> int:
        """Step over `nbytes` bytes, which must be there, and return where they start."""
        start = self.at
        if nbytes > self.end - start:
            raise self.cut(nbytes, what)
        self.at = start + nbytes
        return start

    def cut(self, nbytes: int, what: str) -> InvalidCheckpoint:
        found = f"{self.end - self.at:,} more bytes"
        if self.end < self.file.size:
            found = f"the limit of {MAX_METADATA_BYTES >> 20} MB for metadata"
        return self.error(what, f"{nbytes:,} bytes at byte {self.at:,}", found)

    def error(self, what: str, expected: str, found: str) -> InvalidCheckpoint:
        return InvalidCheckpoint(
            f"`{self.file.path}`: {what}: expected {expected}, found {found}", hint=RE_FETCH
        )
