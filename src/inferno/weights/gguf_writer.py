"""GGUF version 3, written: metadata, then tensors, one after the other.

Knows the container alone; not what the keys mean, nor what an architecture computes.

Source: docs/gguf.md of ggml.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.weights.tensor import FORMATS, Bytes

VERSION = 3
ALIGNMENT = 32
MAX_NAME_BYTES = 64  # as the specification has it, and readers too

Value = bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]

_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64, _INT64 = 4, 5, 6, 7, 8, 9, 10, 11


class TensorToWrite(NamedTuple):
    """A tensor under its GGUF name, its shape outermost first, and its bytes in pieces."""

    name: str
    shape: tuple[int, ...]
    format: str
    pieces: Iterable[Bytes]


def write_gguf(path: Path, metadata: Mapping[str, Value], tensors: Sequence[TensorToWrite]) -> None:
    """Write a file, which has its name only once all of it is on the disk.

    A number's type follows from its value: whole ones are u32 if they fit, in arrays i32; others
    are f32. `pieces` are consumed one tensor after the other, in the order given.

    Raises:
        InvalidOption: a value that GGUF has no type for, or pieces that are not the tensor.
        OSError: the disk refuses.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(_head(metadata, tensors))
            for tensor in tensors:
                _pad(file)
                _write_data(file, tensor)
            _pad(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _head(metadata: Mapping[str, Value], tensors: Sequence[TensorToWrite]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_string(key), _value(key, value)]
    offset = 0
    for tensor in tensors:
        if len(tensor.name.encode()) > MAX_NAME_BYTES:
            raise InvalidOption(
                f"Tensor `{tensor.name}`: expected a name of up to {MAX_NAME_BYTES} bytes"
            )
        format = FORMATS[tensor.format]
        assert format.ggml_id is not None, format
        # ggml counts dimensions from the innermost.
        parts.append(_string(tensor.name))
        parts.append(
            struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        )
        parts.append(struct.pack("<IQ", format.ggml_id, offset))
        offset += -(-format.nbytes(tensor.shape) // ALIGNMENT) * ALIGNMENT
    return b"".join(parts)


def _write_data(file: BinaryIO, tensor: TensorToWrite) -> None:
    expected, written = FORMATS[tensor.format].nbytes(tensor.shape), 0
    for piece in tensor.pieces:
        written += piece.nbytes
        if written > expected:
            break
        file.write(piece.data)
    if written != expected:
        raise InvalidOption(
            f"Tensor `{tensor.name}`: expected {expected:,} bytes of {tensor.format} for shape "
            f"{tensor.shape}, found {written:,}"
        )


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(key: str, value: Value) -> bytes:
    if isinstance(value, (bool, int, float, str)):
        kind = _kind(key, value)
        return struct.pack("<I", kind) + _scalar(kind, value)
    if not isinstance(value, (list, tuple)):
        raise _no_type(key, value)
    kinds = {_kind(key, item) for item in value}
    if kinds <= {_UINT32, _INT32, _INT64, _UINT64} and kinds:
        whole = [item for item in value if isinstance(item, int)]
        if max(whole) >= 2**63:
            raise _no_type(key, value)
        small = all(-(2**31) <= item < 2**31 for item in whole)
        kinds = {_INT32 if small else _INT64}
    if len(kinds) > 1:
        raise InvalidOption(f"`{key}`: expected an array of one type, found several")
    kind = kinds.pop() if kinds else _STRING
    head = struct.pack("<IIQ", _ARRAY, kind, len(value))
    if kind == _STRING:
        return head + b"".join(_string(str(item)) for item in value)
    layout = {_INT32: "i", _INT64: "q", _FLOAT32: "f", _BOOL: "?"}[kind]
    return head + struct.pack(f"<{len(value)}{layout}", *value)


def _kind(key: str, value: object) -> int:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, str):
        return _STRING
    if isinstance(value, float):
        return _FLOAT32
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        if value >= 0:
            return _UINT32 if value < 2**32 else _UINT64
        return _INT32 if value >= -(2**31) else _INT64
    raise _no_type(key, value)


def _no_type(key: str, value: object) -> InvalidOption:
    return InvalidOption(
        f"`{key}`: expected a number, text, or a list of them, found {shown(value)}"
    )


def _scalar(kind: int, value: bool | int | float | str) -> bytes:
    if kind == _STRING:
        return _string(str(value))
    layouts = {_UINT32: "I", _INT32: "i", _FLOAT32: "f", _BOOL: "?", _UINT64: "Q", _INT64: "q"}
    return struct.pack(f"<{layouts[kind]}", value)
