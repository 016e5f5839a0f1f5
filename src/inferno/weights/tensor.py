"""A tensor as it lies in a file, and the table of formats it can lie there in.

Knows neither files nor models: no container syntax, no architecture, no arithmetic on the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Format:
    """How weights are stored: `block` consecutive weights of a row in `block_bytes` bytes.

    `halves` says where in a block its f16 numbers begin; the rest are integers.
    """

    name: str
    ggml_id: int | None
    block: int
    block_bytes: int
    halves: tuple[int, ...] = ()

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of a tensor of `shape`, whose weights must fill whole blocks."""
        return math.prod(shape) // self.block * self.block_bytes


# Sources: ggml's type traits (ggml.c) for the ids and blocks, the dtype list of the safetensors
# crate for the rest. Formats we cannot run are here too: an error can then name them, and their
# sizes are still checked first. Sub-byte safetensors floats are written as blocks.
FORMATS = {
    format.name: format
    for format in (
        Format("f32", 0, 1, 4),
        Format("f16", 1, 1, 2),
        Format("bf16", 30, 1, 2),
        Format("q4_0", 2, 32, 18, (0,)),
        Format("q4_1", 3, 32, 20, (0, 2)),
        Format("q8_0", 8, 32, 34, (0,)),
        Format("q5_0", 6, 32, 22, (0,)),
        Format("q5_1", 7, 32, 24, (0, 2)),
        Format("q8_1", 9, 32, 36),
        Format("q2_k", 10, 256, 84, (80, 82)),
        Format("q3_k", 11, 256, 110, (108,)),
        Format("q4_k", 12, 256, 144, (0, 2)),
        Format("q5_k", 13, 256, 176, (0, 2)),
        Format("q6_k", 14, 256, 210, (208,)),
        Format("q8_k", 15, 256, 292),
        Format("iq2_xxs", 16, 256, 66),
        Format("iq2_xs", 17, 256, 74),
        Format("iq3_xxs", 18, 256, 98),
        Format("iq1_s", 19, 256, 50),
        Format("iq4_nl", 20, 32, 18, (0,)),
        Format("iq3_s", 21, 256, 110),
        Format("iq2_s", 22, 256, 82),
        Format("iq4_xs", 23, 256, 136, (0,)),
        Format("iq1_m", 29, 256, 56),
        Format("tq1_0", 34, 256, 54),
        Format("tq2_0", 35, 256, 66),
        Format("mxfp4", 39, 32, 17),
        Format("nvfp4", 40, 64, 36),
        Format("q1_0", 41, 128, 18),
        # Layouts that ggml has since removed; their ids are still spoken for.
        Format("q4_2", 4, 16, 10),
        Format("q4_3", 5, 16, 12),
        Format("q4_0_4_4", 31, 32, 18),
        Format("q4_0_4_8", 32, 32, 18),
        Format("q4_0_8_8", 33, 32, 18),
        Format("iq4_nl_4_4", 36, 32, 18),
        Format("iq4_nl_4_8", 37, 32, 18),
        Format("iq4_nl_8_8", 38, 32, 18),
        Format("i8", 24, 1, 1),
        Format("i16", 25, 1, 2),
        Format("i32", 26, 1, 4),
        Format("i64", 27, 1, 8),
        Format("f64", 28, 1, 8),
        Format("bool", None, 1, 1),
        Format("u8", None, 1, 1),
        Format("u16", None, 1, 2),
        Format("u32", None, 1, 4),
        Format("u64", None, 1, 8),
        Format("c64", None, 1, 8),
        Format("f8_e4m3", None, 1, 1),
        Format("f8_e5m2", None, 1, 1),
        Format("f8_e8m0", None, 1, 1),
        Format("f8_e4m3fnuz", None, 1, 1),
        Format("f8_e5m2fnuz", None, 1, 1),
        Format("f6_e2m3", None, 4, 3),
        Format("f6_e3m2", None, 4, 3),
        Format("f4", None, 2, 1),
    )
}

SUPPORTED_FORMATS = (
    *("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"),
    *("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"),
)


class StridedBytes(NamedTuple):
    """Rows of bytes, each `stride` bytes after the one before."""

    data: Bytes
    stride: int

    def rows(self, first: int, count: int, width: int) -> Bytes:
        """Return (count, width) bytes."""
        start = self.data[first * self.stride :]
        assert len(start) >= (count - 1) * self.stride + width
        return as_strided(start, (count, width), (self.stride, 1), writeable=False)


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a checkpoint, its bytes still in the file's map.

    `name` is the Hugging Face name, `shape` row-major with the outermost dimension first, `data`
    a read-only view (nbytes,) u8 in `format`. It may start at any address: safetensors promises
    no alignment. `rope_interleaved` says that the rows of each head are in the order of rotary
    pairs (0, d/2, 1, d/2 + 1, …) rather than first halves before second halves.

    With `strides`, values are so many bytes apart in `data`: (row,), or (row, column) if columns
    do not follow one another. With `scales`, rows are MXFP4 whose scales are not in its blocks.
    Take such tensors by `rows`.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    data: Bytes
    rope_interleaved: bool = False
    strides: tuple[int, ...] = ()
    scales: StridedBytes | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of its values."""
        return FORMATS[self.format].nbytes(self.shape)

    def rows(self, first: int, count: int) -> Bytes:
        """Return the bytes of some rows, or values if there is one dimension, one after another."""
        row_bytes = self.nbytes // self.shape[0]
        if not self.strides:
            return self.data[first * row_bytes : (first + count) * row_bytes]
        if self.scales is not None:
            blocks = self.shape[1] // 32
            nibbles = StridedBytes(self.data, self.strides[0]).rows(first, count, 16 * blocks)
            return _mxfp4(nibbles, self.scales.rows(first, count, blocks))
        item = FORMATS[self.format].block_bytes
        shape, strides = (count, *self.shape[1:], item), (*self.strides, 1)
        start = self.data[first * self.strides[0] :]
        last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        assert last < len(start)
        values = as_strided(start, shape, strides, writeable=False)
        return np.ascontiguousarray(values).reshape(-1)

    def __repr__(self) -> str:
        return f"StoredTensor({self.name!r}, shape={self.shape}, format={self.format!r})"


def _mxfp4(nibbles: Bytes, scales: Bytes) -> Bytes:
    """Make ggml's blocks of 17 bytes of rows whose scales lie apart.

    There a byte holds neighbours, the even column low; in ggml's, column j is low and j + 16 high.
    """
    blocks = nibbles.reshape(*scales.shape, 16)
    columns = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    packed = columns[..., :16] | columns[..., 16:] << 4
    return np.concatenate([scales[..., None], packed], axis=-1).reshape(-1)
