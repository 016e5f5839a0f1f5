"""A Hugging Face directory: config.json, safetensors in one file or several, and the tokenizer.

Knows the files and their syntax; not what an architecture computes. A file is hostile until
checked: no length is used before it is compared with the bytes that are there.

Source: the format's README and `SafeTensors::read_metadata` of the safetensors crate.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterable, Mapping

# A link that leads nowhere is there: opening it says what is wrong.
from os.path import lexists
from pathlib import Path
from typing import Any

from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint, ModelNotFound
from inferno.excerpt import quoted, shown
from inferno.file_name import is_file_name
from inferno.weights.checkpoint import (
    RE_FETCH,
    Checkpoint,
    Place,
    TokenizerFiles,
    check_formats,
    check_overlaps,
    hint_for_beginning,
)
from inferno.weights.expert_stacks import unstack_gpt_oss
from inferno.weights.mapped_file import MappedFile, closed_on_error
from inferno.weights.tensor import FORMATS

MAX_HEADER_BYTES = 100_000_000  # the crate's limit
MAX_JSON_BYTES = 16 << 20  # configs are a few KB; an index of 100,000 tensors has 10 MB
MAX_DIMENSIONS = 8
MAX_NAME_BYTES = 1024

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# The dtypes a header may name. Block formats of ggml are not among them.
_DTYPES = {f.name.upper(): f for f in FORMATS.values() if f.block == 1 or f.ggml_id is None}


def open_directory(path: Path) -> Checkpoint:
    """Open the directory of a model as Hugging Face lays it out.

    Raises:
        ModelNotFound, InvalidCheckpoint, UnsupportedModel: see `open_checkpoint`.
    """
    with closed_on_error() as files:
        return _open(path, files)


def _open(path: Path, files: list[MappedFile]) -> Checkpoint:
    if not lexists(path / "config.json"):
        found = sorted(entry.name for entry in path.glob("*.gguf"))
        raise ModelNotFound(
            f"`{path}`: expected a directory with config.json and {WEIGHTS}, found no config.json",
            hint=f"give one of its GGUF files: {', '.join(found[:5])}" if found else None,
        )
    config = read_json(path / "config.json")
    generation_config = _read_optional_json(path / "generation_config.json")
    tokenizer_config = _read_optional_json(path / "tokenizer_config.json") or {}
    places = unstack_gpt_oss(_places(path, files))
    model_config = ModelConfig.from_huggingface(
        config, generation_config, tokenizer_config, {name: p.shape for name, p in places.items()}
    )
    check_formats(places)
    return Checkpoint(
        path,
        "safetensors",
        dataclasses.replace(model_config, name=_name(path)),
        places,
        files=files,
        tokenizer_source=TokenizerFiles(path / "tokenizer.json", tokenizer_config),
        chat_template=_chat_template(path, tokenizer_config),
    )


def _places(path: Path, files: list[MappedFile]) -> dict[str, Place]:
    """Return all tensors of the directory, as transformers would choose them."""
    if lexists(path / WEIGHTS):
        return _read(path / WEIGHTS, files)
    if not lexists(path / INDEX):
        raise ModelNotFound(
            f"`{path}`: expected {WEIGHTS} or {INDEX}, found neither",
            hint="PyTorch's .bin files are not read; convert the model to safetensors or GGUF",
        )
    weight_map = read_json(path / INDEX, MAX_HEADER_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidCheckpoint(
            f"`{INDEX}`: expected `weight_map`, an object of tensor names and files, "
            f"found {shown(weight_map)}",
            hint=RE_FETCH,
        )
    shards: dict[str, dict[str, Place]] = {}
    places = {}
    for name, shard in weight_map.items():
        # An index must not lead out of its directory.
        if not isinstance(shard, str) or not is_file_name(shard):
            raise InvalidCheckpoint(
                f"`{INDEX}`: tensor {quoted(name)}: expected the name of a file beside it, "
                f"found {shown(shard)}",
                hint=RE_FETCH,
            )
        if shard not in shards:
            if not lexists(path / shard):
                raise InvalidCheckpoint(
                    f"{quoted(shard)} is missing: `{INDEX}` says that it has {quoted(name)}",
                    hint=f"put it beside the others, in `{path}`",
                )
            shards[shard] = _read(path / shard, files)
        place = shards[shard].get(name)
        if place is None:
            raise InvalidCheckpoint(
                f"{quoted(shard)}: expected tensor {quoted(name)} as `{INDEX}` says, found none",
                hint="the files are not from the same version of the model; fetch them again",
            )
        places[name] = place
    return places


def _read(path: Path, files: list[MappedFile]) -> dict[str, Place]:
    file = MappedFile(path)
    files.append(file)
    return parse(file)


def parse(file: MappedFile) -> dict[str, Place]:
    """Return the tensors of one safetensors file.

    Raises:
        InvalidCheckpoint: the file breaks the format anywhere.
    """
    where = f"`{file.path.name}`"
    if file.size < 8:
        raise InvalidCheckpoint(
            f"{where}: expected a safetensors file, found {file.size} bytes", hint=RE_FETCH
        )
    (length,) = struct.unpack_from("<Q", file.map)
    if not 2 <= length <= min(MAX_HEADER_BYTES, file.size - 8):
        raise InvalidCheckpoint(
            f"{where}: expected a header of 2 to {min(MAX_HEADER_BYTES, file.size - 8):,} bytes, "
            f"found {length:,}",
            hint=hint_for_beginning(file.map[:64]),
        )
    data = 8 + length
    # The crate wants the brace first: JSON's leading white space is not allowed here.
    if file.map[8] != ord("{"):
        raise InvalidCheckpoint(
            f"{where}: expected a header that begins with {{, found {file.map[8:9]!r}",
            hint=RE_FETCH,
        )
    header = parse_json(file.map[8:data], f"the header of {where}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InvalidCheckpoint(
            f"{where}: `__metadata__`: expected an object of strings, found {shown(metadata)}",
            hint=RE_FETCH,
        )
    places = {name: _place(file, data, name, entry) for name, entry in header.items()}
    end = data
    for name in check_overlaps(file, places):
        if places[name].offset != end:
            raise InvalidCheckpoint(
                f"{where}: tensor {quoted(name)}: expected to begin at offset {end - data:,}, "
                f"where the one before it ends, found {places[name].offset - data:,}",
                hint=RE_FETCH,
            )
        end += places[name].nbytes
    if end != file.size:
        raise InvalidCheckpoint(
            f"{where}: expected {end:,} bytes, found {file.size:,}", hint=RE_FETCH
        )
    return places


def _place(file: MappedFile, data: int, name: str, entry: Any) -> Place:
    """Check one entry of a header, whose offsets count from byte `data` of the file."""

    def error(expected: str, found: str) -> InvalidCheckpoint:
        return InvalidCheckpoint(
            f"`{file.path.name}`: tensor {quoted(name)}: expected {expected}, found {found}",
            hint=RE_FETCH,
        )

    if not 0 < len(name) <= MAX_NAME_BYTES:
        raise error(f"a name of 1 to {MAX_NAME_BYTES} characters", f"{len(name):,}")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise error("an object of dtype, shape and data_offsets", shown(entry))
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    format = _DTYPES.get(dtype) if isinstance(dtype, str) else None
    if format is None:
        raise error("a dtype that safetensors knows", shown(dtype))
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise error(f"a shape of up to {MAX_DIMENSIONS} sizes", shown(shape))
    if not _are_sizes(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1]:
        raise error("data_offsets as a begin and an end", shown(offsets))
    begin, end = offsets
    if end > file.size - data:
        raise error(f"data_offsets within {file.size - data:,} bytes of data", shown(offsets))
    nbytes = format.nbytes(tuple(shape))
    if end - begin != nbytes:
        raise error(f"{nbytes:,} bytes for {dtype} of shape {tuple(shape)}", f"{end - begin:,}")
    return Place(file, data + begin, end - begin, format.name, tuple(shape))


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read a JSON object of at most `limit` bytes from `path`.

    Raises:
        ModelNotFound: the file cannot be read.
        InvalidCheckpoint: it is too large, not JSON, or no object.
    """
    return parse_json(_read_bytes(path, limit), f"`{path.name}`")


def parse_json(text: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object; duplicate keys, NaN and infinities are errors.

    Raises:
        InvalidCheckpoint: it is not such an object.
    """
    try:
        value = json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidCheckpoint(
            f"{what}: expected JSON, found otherwise: {shown(reason)[1:-1]}",
            hint=hint_for_beginning(text[:64].lstrip()),
        ) from None
    if not isinstance(value, dict):
        raise InvalidCheckpoint(
            f"{what}: expected a JSON object, found {shown(value)}", hint=RE_FETCH
        )
    return value


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"duplicate key {shown(key)}")
        values[key] = value
    return values


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _read_optional_json(path: Path) -> dict[str, Any] | None:
    return read_json(path) if lexists(path) else None


def _read_bytes(path: Path, limit: int) -> bytes:
    file = MappedFile(path)
    try:
        if file.size > limit:
            raise InvalidCheckpoint(
                f"`{path.name}`: expected at most {limit:,} bytes, found {file.size:,}"
            )
        return file.map[:]
    finally:
        file.close()


def _chat_template(path: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """Return chat_template.jinja, else the (default) template of tokenizer_config.json."""
    if lexists(path / "chat_template.jinja"):
        try:
            return _read_bytes(path / "chat_template.jinja", MAX_JSON_BYTES).decode()
        except UnicodeDecodeError:
            raise InvalidCheckpoint(
                "`chat_template.jinja`: expected UTF-8 text, found other bytes", hint=RE_FETCH
            ) from None
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = {
            entry["name"]: entry.get("template")
            for entry in template
            if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        }
        if "default" not in named:
            raise InvalidCheckpoint(
                "`chat_template` in tokenizer_config.json: expected one named `default`, "
                f"found {shown(sorted(named))}",
                hint=RE_FETCH,
            )
        template = named["default"]
    if template is not None and not isinstance(template, str):
        raise InvalidCheckpoint(
            f"`chat_template` in tokenizer_config.json: expected a string, found {shown(template)}",
            hint=RE_FETCH,
        )
    return template


def _name(path: Path) -> str:
    """Return what to call the model: the directory, or the repository if it is a hub snapshot."""
    path = path.absolute()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.split("--")[-1]
    return path.name
