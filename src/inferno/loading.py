"""From an open checkpoint to a loaded native model: lower, check that it fits, pack.

Knows no text: no tokenizer, no template, no sampling.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inferno import _native
from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint, InvalidOption, OutOfMemory
from inferno.excerpt import shown
from inferno.graph import Floats, Graph, Parameter, Parameters
from inferno.lowering import Program, assign_buffers, lower
from inferno.lowering.operations import Slice, VectorSource
from inferno.machine import available_memory
from inferno.models import build_of
from inferno.prefix_cache import PAGE_POSITIONS
from inferno.recipes import check_type, format_of
from inferno.weights import Checkpoint
from inferno.weights.tensor import StoredTensor

Progress = Callable[[str, int, int], None]


class PackedFormat(NamedTuple):
    """A format of the native core: the size of its blocks, as stored and packed by 16 rows."""

    name: str
    activation: str  # what its matrices read: "q8", "f32", …
    columns: int  # of a block
    block_bytes: int
    tile_block_bytes: int
    encodes: bool  # floats can be quantized to it

    def packed_bytes(self, rows: int, columns: int) -> int:
        """Return the bytes of a packed matrix, in whole tiles of 16 rows and whole blocks."""
        return -(-rows // 16) * -(-columns // self.columns) * self.tile_block_bytes


PACKED_FORMATS = {f.name: f for f in map(PackedFormat._make, _native.formats())}
ACTIVATIONS = {name: (columns, size) for name, columns, size in _native.activations()}
_FLOAT_FORMATS = ("f32", "f16", "bf16")

# Texts of a whole context that the KV cache should hold: one that runs, and some to come back to.
_CACHED_CONTEXTS = 4

# How keys and values can be kept, the default first.
KV_CACHE_TYPES = tuple(_native.cache_types())

# Rows of a pass at most, and those of them whose logits are computed at once when all are wanted:
# 64 x 49,152 floats are 12 MB.
MAX_PASS_ROWS = 512
LOGITS_ROWS = 64
# What is not counted one by one: what threads set aside in a phase (a quarter of a megabyte each),
# softmax states of a long context, ids, Python's objects.
_SMALL_THINGS_BYTES = 16 << 20


@dataclass(frozen=True)
class LoadedModel:
    """The native model, its pool of KV pages, and what was loaded."""

    model: _native.Model
    pages: _native.PagePool
    program: Program
    formats: tuple[str, ...]  # of the matrices, by size
    context: int
    kv_cache: str  # type of the pages
    cache_bytes: int  # of pages, before those that no session needs are given up


def load_model(
    checkpoint: Checkpoint,
    threads: _native.ThreadPool,
    *,
    weights: str | None,
    context: int | None,
    kv_cache: str,
    progress: Progress,
) -> LoadedModel:
    """Pack the checkpoint's weights for the native core.

    Raises:
        InvalidOption: `weights`, `context` or `kv_cache` cannot be.
        InvalidCheckpoint: tensors are missing, extra, or of the wrong shape.
        OutOfMemory: it would not fit.
    """
    program = lowered(checkpoint, weights, context)
    pages = page_pool(checkpoint.config, kv_cache)
    context = _fitting_context(checkpoint, program, kv_cache, context)
    model = _native.Model(_plan(checkpoint, program))
    _pack(checkpoint, program, model, threads, progress)
    sizes: dict[str, int] = {}
    for matrix in program.matrices:
        sizes[matrix.format] = sizes.get(matrix.format, 0) + matrix.rows * matrix.columns
    return LoadedModel(
        model,
        pages,
        program,
        tuple(sorted(sizes, key=lambda f: -sizes[f])),
        context,
        kv_cache,
        _cache_bytes(pages.bytes_per_position * context),
    )


def lowered(checkpoint: Checkpoint, weights: str | None, context: int | None = None) -> Program:
    """Return what the model computes, having checked that the checkpoint has its tensors.

    What `rope_scaling` may go by is the context that was asked for, not what memory allows: the
    same request has the same bits on every machine.

    Raises:
        InvalidOption, InvalidCheckpoint: as `load_model`.
    """
    c = checkpoint.config
    c = dataclasses.replace(c, context=checked_context(c, context))
    formats = _Formats(checkpoint, weights)
    graph = Graph()
    build_of(c.model_type)(graph, c, Parameters())
    program = lower(
        graph.tensors, formats.of, {f.name: f.activation for f in PACKED_FORMATS.values()}
    )
    _check_shapes(checkpoint, program)
    return program


def checked_kv_cache(asked: object) -> str:
    """Return a type of cache. Raises InvalidOption if there is none of that name."""
    if isinstance(asked, str) and asked in KV_CACHE_TYPES:
        return asked
    close = difflib.get_close_matches(str(asked).lower(), KV_CACHE_TYPES, n=1)
    raise InvalidOption(
        f"`kv_cache`: expected one of {', '.join(KV_CACHE_TYPES)}, found {shown(asked)}",
        hint=f"did you mean `{close[0]}`?"
        if isinstance(asked, str) and close
        else f"leave it out for {KV_CACHE_TYPES[0]}",
    )


def page_pool(c: ModelConfig, kv_cache: str) -> _native.PagePool:
    """Return the pool that a model's caches take their pages from; it holds none yet."""
    return _native.PagePool(c.num_hidden_layers, c.num_key_value_heads, c.head_dim, kv_cache)


class Estimate(NamedTuple):
    """The bytes that a loaded model takes: weights as packed, one full cache, everything else."""

    weights: int
    kv_cache_per_token: int
    context: int
    scratch: int

    @property
    def kv_cache(self) -> int:
        """The cache of a session that fills the context, in whole pages."""
        return -(-self.context // PAGE_POSITIONS) * PAGE_POSITIONS * self.kv_cache_per_token

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.scratch


def estimate(c: ModelConfig, program: Program, kv_cache: str, context: int) -> Estimate:
    """Return what a model will take with a cache of the type `kv_cache`."""
    position_bytes = page_pool(c, kv_cache).bytes_per_position
    return Estimate(weight_bytes(program), position_bytes, context, _scratch_bytes(c, program))


def _scratch_bytes(c: ModelConfig, program: Program) -> int:
    """Return what the longest pass takes: its buffers, as if no two operations were fused, the
    angles of its positions, the logits and their copy."""
    buffers, place = assign_buffers(program.operations)
    head = program.operations[-1].output
    total = MAX_PASS_ROWS * len(program.ropes) * 4 * c.head_dim
    total += LOGITS_ROWS * 4 * c.vocab_size
    for number, buffer in enumerate(buffers):
        rows = MAX_PASS_ROWS
        if head is not None and number == place[head.value]:
            rows = LOGITS_ROWS
        if buffer.extent == "routed":
            rows *= program.experts_per_token
        columns, block_bytes = (32, 4 * 32) if buffer.kind == "rows" else ACTIVATIONS[buffer.kind]
        total += rows * -(-buffer.columns // columns) * block_bytes
    return total + _SMALL_THINGS_BYTES


class _Formats:
    """Which format each matrix is packed in."""

    def __init__(self, checkpoint: Checkpoint, weights: str | None) -> None:
        if weights is not None:
            check_type("weights", weights, "leave it out to keep the types of the file")
        self._checkpoint = checkpoint
        self._weights = weights

    def of(self, parameter: Parameter) -> str:
        name = f"{parameter.name}.weight"
        tensor = self._checkpoint.tensors.get(name)
        if tensor is None:  # missing, and reported as such when shapes are checked
            return self._weights or "f32"
        if self._weights is None or tensor.format == self._weights:
            return tensor.format
        c = self._checkpoint.config
        wanted = format_of(
            self._weights,
            name,
            tensor.shape[-1],
            layers=c.num_hidden_layers,
            tied=c.tie_word_embeddings,
        )
        if tensor.format != wanted and tensor.format not in _FLOAT_FORMATS:
            raise InvalidOption(
                f"`weights`: tensor `{name}` is stored as {tensor.format}; as {wanted} it would be "
                "rounded twice",
                hint="leave `weights` out, or load the original float weights",
            )
        return wanted


def _check_shapes(checkpoint: Checkpoint, program: Program) -> None:
    used = set()
    for matrix in program.matrices:
        for part in matrix.parts:
            name = f"{part.parameter.name}.weight"
            checkpoint.tensor(name, (part.rows, matrix.columns))
            used.add(name)
    for vector in program.vectors:
        for parameter, size, _ in vector.parts:
            if parameter is not None:
                name = f"{parameter.name}{vector.suffix}"
                checkpoint.tensor(name, (size,))
                used.add(name)
    if checkpoint.config.tie_word_embeddings:
        used.add("lm_head.weight")  # a copy of the embedding that some writers leave in
    extra = [
        name
        for name in checkpoint.tensors
        if name not in used and not name.endswith("rotary_emb.inv_freq")
    ]
    if extra:
        raise InvalidCheckpoint(
            f"Tensor `{extra[0]}`: architecture `{checkpoint.config.model_type}` has no use for it"
            + (f", nor for {len(extra) - 1} more" if len(extra) > 1 else ""),
            hint="the config names an architecture that these tensors are not of",
        )


def weight_bytes(program: Program) -> int:
    """Return the bytes of all matrices as packed, and of norms and biases, which are floats."""
    return sum(
        PACKED_FORMATS[m.format].packed_bytes(m.rows, m.columns) for m in program.matrices
    ) + 4 * sum(size for vector in program.vectors for _, size, _ in vector.parts)


def checked_context(c: ModelConfig, asked: int | None) -> int:
    """Return the context that was asked for, or the model's.

    Raises:
        InvalidOption: it is no number of positions that the model has.
    """
    longest = c.max_context
    if asked is None:
        return c.max_position_embeddings
    if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= longest:
        raise InvalidOption(
            f"`context`: expected an integer from 1 to {longest:,}, found {shown(asked)}",
            hint=f"the model was trained on {c.max_position_embeddings:,} positions",
        )
    return asked


def _fitting_context(
    checkpoint: Checkpoint, program: Program, kv_cache: str, asked: int | None
) -> int:
    """Return the context to offer: what was asked, or as much of the model's as fits in memory."""
    c = checkpoint.config
    wanted = checked_context(c, asked)
    memory = available_memory()
    if memory is None:
        return wanted
    needed = estimate(c, program, kv_cache, wanted)
    room = memory - needed.weights - needed.scratch
    page_bytes = needed.kv_cache_per_token * PAGE_POSITIONS
    fits = max(0, room // page_bytes) * PAGE_POSITIONS
    if fits >= wanted:
        return wanted
    if asked is None and fits >= PAGE_POSITIONS:
        return int(fits)
    if asked is None:
        needed = needed._replace(context=PAGE_POSITIONS)
    remedies = [
        f"load with context={fits}" if fits >= PAGE_POSITIONS else None,
        *_smaller_cache(c, needed),
        *_smaller_weights(checkpoint, program),
        "pick a smaller model"
        if fits >= PAGE_POSITIONS
        else "pick a smaller model (no context is short enough for this one)",
        "free some memory",
    ]
    *others, last = filter(None, remedies)
    raise OutOfMemory(
        f"Model `{c.name}`: expected {_megabytes(needed.total)} of free memory "
        f"({_megabytes(needed.weights)} weights, {_megabytes(needed.kv_cache)} {kv_cache} cache "
        f"for {needed.context:,} tokens, {_megabytes(needed.scratch)} scratch), "
        f"found {_megabytes(memory)}",
        hint=f"{', '.join(others)}, or {last}",
    )


def _smaller_cache(c: ModelConfig, needed: Estimate) -> list[str]:
    """Say which type of cache would take least, and how much; nothing if this one does."""
    sizes = {type: page_pool(c, type).bytes_per_position for type in KV_CACHE_TYPES}
    least = min(KV_CACHE_TYPES, key=lambda type: sizes[type])
    if sizes[least] >= needed.kv_cache_per_token:
        return []
    smaller = needed._replace(kv_cache_per_token=sizes[least])
    return [f'halve the cache (kv_cache="{least}", {_megabytes(smaller.kv_cache)})']


def _smaller_weights(checkpoint: Checkpoint, program: Program) -> list[str]:
    """Say how the weights would take less, and how much; nothing if they are small already."""
    floats = sum(
        PACKED_FORMATS[m.format].packed_bytes(m.rows, m.columns)
        for m in program.matrices
        if m.format in _FLOAT_FORMATS
    )
    now = weight_bytes(program)
    if 2 * floats > now:
        try:
            smaller = weight_bytes(lowered(checkpoint, "q4_0"))
        except InvalidOption:  # some are quantized already
            return ["take a file of it in smaller weights, such as Q4_0"]
        return [f'quantize while loading (weights="q4_0", {_megabytes(smaller)})']
    if any(m.format == "q8_0" for m in program.matrices):
        return ["take a file of it in smaller weights, such as Q4_0"]
    return []


def _cache_bytes(context_bytes: int) -> int:
    """Return the bytes that the KV cache may take: a few contexts, or half of what is free."""
    wanted = _CACHED_CONTEXTS * context_bytes
    memory = available_memory()
    return wanted if memory is None else max(context_bytes, min(wanted, memory // 2))


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


def _floats(checkpoint: Checkpoint, name: str) -> Floats:
    """Return the values of a float tensor of one dimension."""
    tensor = checkpoint.tensors[name]
    data = np.frombuffer(tensor.rows(0, tensor.shape[0]).tobytes(), np.uint8)  # aligned
    if tensor.format == "f32":
        return data.view(np.float32)
    if tensor.format == "f16":
        return data.view(np.float16).astype(np.float32)
    if tensor.format == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    raise InvalidCheckpoint(
        f"Tensor `{name}`: expected floats for a norm or bias, found {tensor.format}"
    )


def _vector(checkpoint: Checkpoint, source: VectorSource) -> Floats:
    pieces = []
    for parameter, size, rope_head_dim in source.parts:
        if parameter is None:
            pieces.append(np.zeros(size, np.float32))
            continue
        name = f"{parameter.name}{source.suffix}"
        values = _floats(checkpoint, name)
        if checkpoint.source != "gguf":  # whose converter adds it
            values = values + np.float32(source.offset)
        if rope_head_dim and checkpoint.tensors[name].rope_interleaved:
            heads = values.reshape(-1, rope_head_dim // 2, 2)
            values = heads.transpose(0, 2, 1).reshape(-1)
        pieces.append(values)
    return np.ascontiguousarray(np.concatenate(pieces))


def _plan(checkpoint: Checkpoint, program: Program) -> _native.Plan:
    """Write the program as the native core's plan."""
    c = checkpoint.config
    plan = _native.Plan(
        c.vocab_size,
        c.num_hidden_layers,
        c.num_key_value_heads,
        c.head_dim,
        program.experts,
        program.experts_per_token,
    )
    for matrix in program.matrices:
        plan.matrix(matrix.name, matrix.format, matrix.rows, matrix.columns)
    for vector in program.vectors:
        values = _vector(checkpoint, vector)
        plan.vector(vector.suffix, values)
    for rope in program.ropes:
        plan.rope(rope.inverse_frequencies, rope.factor)
    patterns, buffers = assign_buffers(program.operations)
    numbers: list[int] = []
    for pattern in patterns:
        if pattern.kind == "rows":
            numbers.append(plan.rows(pattern.columns, pattern.extent))
        else:
            numbers.append(plan.pack(pattern.kind, pattern.columns, pattern.extent))

    def place(s: Slice | None) -> tuple[int, int, int]:
        return (numbers[buffers[s.value]], s.offset, s.width) if s else (-1, 0, 0)

    for op in program.operations:
        plan.op(
            op.kind,
            input=place(op.input),
            second=place(op.second),
            third=place(op.third),
            output=place(op.output),
            pack=numbers[buffers[op.pack]] if op.pack else -1,
            matrix=op.matrix,
            vector=op.vector,
            **op.attributes,
        )
    return plan


def _pack(
    checkpoint: Checkpoint,
    program: Program,
    model: _native.Model,
    threads: _native.ThreadPool,
    progress: Progress,
) -> None:
    """Pack tensor by tensor, letting go of each one's pages: the weights are in memory once."""
    total = sum(
        checkpoint.tensors[f"{part.parameter.name}.weight"].nbytes
        for matrix in program.matrices
        for part in matrix.parts
    )
    done = 0
    for number, matrix in enumerate(program.matrices):
        first_row = 0
        for part in matrix.parts:
            tensor = checkpoint.tensors[f"{part.parameter.name}.weight"]
            rope = part.rope_head_dim if tensor.rope_interleaved else 0
            for rows, data in _slabs(tensor, part.rope_head_dim or 1):
                model.pack(threads, number, first_row, rows, tensor.format, data, rope)
                first_row += rows
                done += data.nbytes
                progress("loading", done, total)
            checkpoint.release(tensor)


def _slabs(tensor: StoredTensor, multiple: int) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    """Cut a tensor into runs of rows of some 64 MB, so that progress shows and pages can go."""
    rows = tensor.shape[0]
    row_bytes = tensor.nbytes // rows
    step = max(16 * multiple, (64 << 20) // row_bytes // (16 * multiple) * (16 * multiple))
    for first in range(0, rows, step):
        count = min(step, rows - first)
        yield count, tensor.rows(first, count)
