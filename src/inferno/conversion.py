"""An open checkpoint to a GGUF file, in other weights if asked: what quantizing while loading does,
done once.

Loading the file gives the bits that quantizing while loading gives. What GGUF cannot say exactly
is refused. Knows nothing of running models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from inferno import _native, hub
from inferno.catalogue import entry_of
from inferno.config import ModelConfig
from inferno.errors import DownloadFailed, InvalidOption, UnsupportedModel
from inferno.excerpt import shown
from inferno.gguf_vocabulary import gguf_vocabulary
from inferno.graph import Floats
from inferno.loading import PACKED_FORMATS, Progress, lowered
from inferno.machine import default_threads
from inferno.recipes import file_type
from inferno.tokenizer import Tokenizer, tokenizer_for
from inferno.weights import Checkpoint, StoredTensor, open_checkpoint
from inferno.weights.gguf_names import gguf_name, is_rope_interleaved
from inferno.weights.gguf_writer import TensorToWrite, Value, write_gguf
from inferno.weights.tensor import Bytes

QUANTIZERS = tuple(_native.quantizers())
DEFAULT_QUANTIZER = "least_squares"  # the best that needs no calibration

_QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION
_SLAB_BYTES = 64 << 20

# The keys of GGUF below `{arch}.`, and those of ModelConfig that they stand for.
_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.dimension_count": "head_dim",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
_SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


def quantize_once(
    model: str, path: Path, weights: str | None, progress: Progress | None = None
) -> Path:
    """Write a quantized copy of `model`, which lies at `path`, into the cache, and return its file.

    `Engine.load` then takes it in place of quantizing. `weights` is by default the catalogue's.

    Raises:
        InvalidOption: no weights, or none that floats can become; a model without a name.
        DownloadFailed: the disk refuses.
        UnsupportedModel: GGUF has no words for something about the model.
        and what `open_checkpoint` raises.
    """
    entry = entry_of(model)
    weights = weights if weights is not None or entry is None else entry.weights
    if weights is None:
        raise InvalidOption(
            f"Model {shown(model)}: expected the type to quantize to, found none",
            hint='say which (weights="q4_0")',
        )
    target = hub.quantized_path(model, weights)
    if target is None:
        raise InvalidOption(f"Model {shown(model)}: only what has a name has a place in the cache")
    if not target.is_file():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_checkpoint(path) as checkpoint:
                write_checkpoint(checkpoint, target, weights, progress=progress)
        except (InvalidOption, UnsupportedModel):
            raise
        except OSError as error:
            raise DownloadFailed(
                f"Cache `{target.parent}`: expected a folder to write to, "
                f"found: {error.strerror or error}",
                hint="free some space, or set INFERNO_HOME to another folder",
            ) from error
    return target


def write_checkpoint(
    checkpoint: Checkpoint,
    path: Path,
    weights: str | None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    quantizer: str = "reference",
    importance: Mapping[str, Floats] | None = None,
) -> None:
    """Write `checkpoint` to the GGUF file `path`; `weights` as in `Engine.load`.

    `quantizer` "reference" is what quantizing while loading does. `importance`: the weights that
    "least_squares" gives to errors in the columns of a tensor, by its name: (columns,) each.

    Raises:
        InvalidOption: `weights` or `quantizer` cannot be.
        InvalidCheckpoint: tensors are missing, extra, or of the wrong shape.
        UnsupportedModel: GGUF has no words for something about the model.
        OSError: the disk refuses.
    """
    check_quantizer(quantizer)
    program = lowered(checkpoint, weights)
    formats = {
        f"{part.parameter.name}.weight": matrix.format
        for matrix in program.matrices
        for part in matrix.parts
    }
    for vector in program.vectors:
        if vector.offset:  # GGUF stores the sum, and what reads it must know
            raise UnsupportedModel(
                f"`model_type` {checkpoint.config.model_type}: GGUF has other norms than its "
                "checkpoint, and they cannot be written yet",
                hint="quantize it while loading instead",
            )
        formats |= {
            f"{parameter.name}{vector.suffix}": "f32"
            for parameter, _, _ in vector.parts
            if parameter is not None
        }
    metadata = _metadata(checkpoint, formats, weights)
    pool = _native.ThreadPool(threads if threads is not None else default_threads())
    total = sum(checkpoint.tensors[name].data.nbytes for name in formats)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress("quantizing", done, total)

    importance = importance or {}

    def encode(name: str, format: str) -> Callable[[Bytes, int], Bytes]:
        source = checkpoint.tensors[name].format

        def rows(data: Bytes, columns: int) -> Bytes:
            return _native.encode_rows(
                pool, format, source, data, columns, quantizer, importance.get(name)
            )

        return rows

    tensors = [
        _tensor(checkpoint, checkpoint.tensors[name], format, encode(name, format), advance)
        for name, format in formats.items()
    ]
    write_gguf(path, metadata, tensors)


def check_quantizer(name: object) -> None:
    """Raise unless `name` is one of `QUANTIZERS`.

    Raises:
        InvalidOption: it is not.
    """
    if name not in QUANTIZERS:
        raise InvalidOption(
            f"`quantizer`: expected one of {', '.join(QUANTIZERS)}, found {shown(name)}"
        )


def _tensor(
    checkpoint: Checkpoint,
    tensor: StoredTensor,
    format: str,
    encode: Callable[[Bytes, int], Bytes],
    advance: Callable[[int], None],
) -> TensorToWrite:
    c = checkpoint.config
    name = gguf_name(tensor.name)
    if name is None:
        raise UnsupportedModel(f"Tensor `{tensor.name}`: GGUF has no name for it")
    columns = tensor.shape[-1]
    facts = PACKED_FORMATS[format]
    if facts.activation != "f32" and columns % facts.columns:
        raise UnsupportedModel(
            f"Tensor `{tensor.name}`: expected rows of whole blocks of {facts.columns} for "
            f"{format}, found {columns}",
            hint="quantize it while loading instead, where the last block is filled up",
        )
    interleave = is_rope_interleaved(c.model_type, tensor.name) and not tensor.rope_interleaved
    rows = prod(tensor.shape[:-1]) if len(tensor.shape) > 1 else 1

    def pieces() -> Iterator[Bytes]:
        if len(tensor.shape) == 1 and interleave:  # a bias: its values are its rows
            stored, width = tensor.data.reshape(columns, -1), 1
        else:
            stored, width = tensor.data.reshape(rows, -1), columns
        head_dim = c.head_dim if interleave else 1
        step = max(1, _SLAB_BYTES // stored.shape[1] // head_dim) * head_dim
        for first in range(0, stored.shape[0], step):
            slab = stored[first : first + step]
            if interleave:
                slab = _interleaved(slab, c.head_dim)
            flat = np.ascontiguousarray(slab).reshape(-1)
            if tensor.format == format:
                yield flat
            else:
                yield encode(flat, width)
            advance(slab.nbytes)
        checkpoint.release(tensor)

    return TensorToWrite(name, tensor.shape, format, pieces())


def _interleaved(rows: Bytes, head_dim: int) -> Bytes:
    """Put the rows of each head in the order of rotary pairs: 0, d/2, 1, d/2 + 1, …"""
    heads = rows.reshape(-1, 2, head_dim // 2, rows.shape[1])
    return heads.transpose(0, 2, 1, 3).reshape(rows.shape)


# ---- metadata ----------------------------------------------------------------------------------


def _metadata(
    checkpoint: Checkpoint, formats: Mapping[str, str], weights: str | None
) -> dict[str, Value]:
    source = checkpoint.tokenizer_source
    if isinstance(source, Mapping):  # GGUF: say it again
        metadata: dict[str, Value] = {
            key: value for key, value in source.items() if not key.startswith("split.")
        }
    else:
        tokenizer = tokenizer_for(checkpoint)
        metadata = _config_keys(checkpoint.config)
        metadata |= gguf_vocabulary(
            source.path, tokenizer, checkpoint.config.vocab_size, checkpoint.chat_template
        )
        _check_same(checkpoint, tokenizer, metadata, formats)
    sizes: dict[str, int] = {}
    for name, format in formats.items():
        sizes[format] = sizes.get(format, 0) + prod(checkpoint.tensors[name].shape)
    most = weights if weights is not None else max(sizes, key=lambda format: sizes[format])
    number = file_type(most)
    # A mix that is written as it was read stays what it says it is.
    if number is not None and (weights is not None or "general.file_type" not in metadata):
        metadata["general.file_type"] = number
    metadata["general.quantization_version"] = _QUANTIZATION_VERSION
    metadata.pop("general.alignment", None)
    return metadata


def _config_keys(c: ModelConfig) -> dict[str, Value]:
    architecture = c.model_type
    metadata: dict[str, Value] = {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": c.name,
    }
    for key, attribute in _KEYS.items():
        metadata[f"{architecture}.{key}"] = getattr(c, attribute)
    for ours, theirs in _SAMPLING.items():
        if ours in c.generation:
            metadata[f"general.sampling.{theirs}"] = c.generation[ours]
    return metadata


def _check_same(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    metadata: Mapping[str, Any],
    formats: Mapping[str, str],
) -> None:
    """Read the metadata as a file's, and compare what comes of it with what it was made from."""
    c = checkpoint.config
    shapes = {name: checkpoint.tensors[name].shape for name in formats}
    read = ModelConfig.from_gguf(metadata, shapes)
    ends = set(read.eos_token_ids) | set(Tokenizer.from_gguf(metadata).eos_ids)
    expected_ends = set(c.eos_token_ids) | set(tokenizer.eos_ids)
    if ends != expected_ends:
        raise _unsaid("eos_token_id", sorted(expected_ends), sorted(ends))
    for field in fields(ModelConfig):
        # Ends are compared above, and what begins a text is the tokenizer's affair.
        if field.name in ("architecture", "bos_token_id", "eos_token_ids", "name", "raw"):
            continue
        expected, found = getattr(c, field.name), getattr(read, field.name)
        if _as_float32(expected) != _as_float32(found):
            raise _unsaid(field.name, expected, found)


def _as_float32(value: Any) -> Any:
    """Return `value` with its numbers as GGUF and the kernels hold them."""
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, Mapping):
        return {key: _as_float32(item) for key, item in value.items()}
    return value


def _unsaid(what: str, expected: object, found: object) -> UnsupportedModel:
    return UnsupportedModel(
        f"`{what}`: GGUF has no words for {shown(expected)}, it would read as {shown(found)}",
        hint="use the directory as it is: it can be quantized while it is loaded",
    )
