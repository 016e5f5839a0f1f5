"""The block formats of weights and activations, from bytes to float32 and back.

Knows bytes and blocks; knows no files and no tensors' names. All formats are little-endian; a block
is 32 or 256 values along a row:

    q8_0   f16 d | int8 q[32]                               x = d * q                       34 bytes
    q4_0   f16 d | nibbles q[32]                            x = d * (q - 8)                 18
    q4_1   f16 d | f16 m | nibbles q[32]                    x = d * q + m                   20
    q5_0   f16 d | bits h[32] | nibbles q[32]               x = d * (q + 16 h - 16)         22
    q5_1   f16 d | f16 m | bits h[32] | nibbles q[32]       x = d * (q + 16 h) + m          24
    iq4_nl f16 d | nibbles q[32]                            x = d * IQ4_VALUES[q]           18
    mxfp4  u8 e | nibbles q[32]                             x = 2^(e - 128) * E2M1[q]       17

    q2_k   u4 s[16], m[16] | 2 bits q[256] | f16 d | f16 dmin         x = d s q - dmin m    84
    q3_k   bits h[256] | 2 bits q[256] | 6 bits s[16] | f16 d         x = d (s - 32) (q + 4 h - 4)
    q4_k   f16 d | f16 dmin | 6 bits s[8], m[8] | nibbles q[256]      x = d s q - dmin m    144
    q5_k   f16 d | f16 dmin | 6 bits s[8], m[8] | bits h[256] | nibbles q[256]              176
    q6_k   nibbles q[256] | 2 bits h[256] | int8 s[16] | f16 d        x = d s (q + 16 h - 32)
    iq4_xs f16 d | 6 bits s[8] | nibbles q[256]             x = d (s - 32) IQ4_VALUES[q]    136

In blocks of 32, byte j of the nibbles holds value j in its low half and value j + 16 in its high
half. Source: the reference quantizers of ggml, from their description; proven byte for byte in
test_reference.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BLOCK = 32
# Bytes per block; f32, f16 and bf16 count as blocks of one value.
BLOCK_BYTES = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "q8_0": 34,
    "q4_0": 18,
    "q4_1": 20,
    "q5_0": 22,
    "q5_1": 24,
    "q2_k": 84,
    "q3_k": 110,
    "q4_k": 144,
    "q5_k": 176,
    "q6_k": 210,
    "iq4_nl": 18,
    "iq4_xs": 136,
    "mxfp4": 17,
}
FORMATS = tuple(BLOCK_BYTES)
SUPER_FORMATS = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs")  # of 256 columns a block
COLUMNS = {f: 256 if f in SUPER_FORMATS else 1 if f.endswith(("32", "16")) else 32 for f in FORMATS}
# Where a block's f16 numbers are; mxfp4 has none.
HALVES = {
    "q8_0": (0,),
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "iq4_nl": (0,),
    "iq4_xs": (0,),
    "mxfp4": (),
}
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int32
)
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int32)  # doubled

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]


def row_bytes(format: str, columns: int) -> int:
    """Count the bytes of a row of `columns` values."""
    return columns * BLOCK_BYTES[format] // COLUMNS[format]


def dequantize(format: str, data: bytes | Bytes, shape: Sequence[int]) -> Floats:
    """Read `shape` values, row-major, from the bytes of a format; float32."""
    raw = np.frombuffer(bytes(data), np.uint8)
    if format == "f32":
        values = raw.view("<f4").astype(np.float32)
    elif format == "f16":
        values = raw.view("<f2").astype(np.float32)
    elif format == "bf16":
        values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        b = unpack(format, raw)
        blocks, subs = b.scales.shape
        codes = b.codes.reshape(blocks, subs, -1).astype(np.float32)
        # d * scale is exact (11 + 8 bits), and but for q6_k so is the product with a code; then
        # only the addition of a minimum rounds.
        values = (b.d[:, None] * b.scales.astype(np.float32))[..., None] * codes
        if b.has_minima:
            values = values + (b.m[:, None] * b.minima.astype(np.float32))[..., None]
    return values.reshape(tuple(shape))


class Blocks(NamedTuple):
    """What a quantized tensor says: x = d * scale * code + m * minimum, sub-block by sub-block."""

    codes: Integers  # (blocks, columns), less their offset
    d: Floats  # (blocks,)
    scales: Integers  # (blocks, sub-blocks); 1 where the format has none
    m: Floats  # (blocks,); -dmin, or 0 where the format has none
    minima: Integers  # (blocks, sub-blocks)
    has_minima: bool


def unpack(format: str, data: bytes | Bytes) -> Blocks:
    """Take blocks apart, into integers and float32 scales."""
    blocks = np.frombuffer(bytes(data), np.uint8).reshape(-1, BLOCK_BYTES[format])
    count = len(blocks)
    if format == "mxfp4":
        d = np.exp2(blocks[:, 0].astype(np.float64) - 128).astype(np.float32)
    else:
        d = half(blocks, HALVES[format][0])
    has_minima = len(HALVES[format]) == 2
    m = half(blocks, HALVES[format][1]) if has_minima else np.zeros_like(d)
    ones = np.ones((count, 1), np.int32)
    if format not in SUPER_FORMATS:
        nibbles = halves_apart(blocks[:, -16:])
        codes = {
            "q8_0": lambda: np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.int32),
            "q4_0": lambda: nibbles - 8,
            "q4_1": lambda: nibbles,
            "q5_0": lambda: nibbles + 16 * bits_of(blocks[:, 2:6]) - 16,
            "q5_1": lambda: nibbles + 16 * bits_of(blocks[:, 4:8]),
            "iq4_nl": lambda: IQ4_VALUES[nibbles],
            "mxfp4": lambda: E2M1[nibbles],
        }[format]()
        return Blocks(codes, d, ones, m, ones * has_minima, has_minima)
    no_minima = np.zeros((count, {"iq4_xs": 8}.get(format, 16)), np.int32)
    if format == "q2_k":
        codes = fields(blocks[:, 16:80], 32, 2)
        scales, minima = (blocks[:, :16] & 15).astype(np.int32), (blocks[:, :16] >> 4).astype(int)
    elif format == "q3_k":
        codes = fields(blocks[:, 32:96], 32, 2) + 4 * fields(blocks[:, :32], 32, 1) - 4
        low = fields(blocks[:, 96:104], 8, 4)
        scales, minima = low + 16 * fields(blocks[:, 104:108], 4, 2) - 32, no_minima
    elif format in ("q4_k", "q5_k"):
        codes = fields(blocks[:, -128:], 32, 4)
        if format == "q5_k":
            codes = codes + 16 * fields(blocks[:, 16:48], 32, 1)
        s, t, rest = (blocks[:, i : i + 4].astype(np.int32) for i in (4, 8, 12))
        scales = np.concatenate([s & 63, (rest & 15) + 16 * (s >> 6)], axis=1)
        minima = np.concatenate([t & 63, (rest >> 4) + 16 * (t >> 6)], axis=1)
    elif format == "q6_k":
        codes = fields(blocks[:, :128], 64, 4) + 16 * fields(blocks[:, 128:192], 32, 2) - 32
        scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.int32)
        minima = no_minima
    else:
        nibbles = halves_apart(blocks[:, 8:].reshape(-1, 16)).reshape(count, 256)
        low = fields(np.ascontiguousarray(blocks[:, 4:8]), 1, 4)
        high = fields(np.ascontiguousarray(blocks[:, 2:4]), 1, 2)
        codes, scales, minima = IQ4_VALUES[nibbles], low + 16 * high - 32, no_minima
    return Blocks(codes, d, scales, -m, minima.astype(np.int32), has_minima)


def half(blocks: Bytes, offset: int) -> Floats:
    """Read the f16 at `offset` of blocks (blocks, bytes): (blocks,) float32."""
    return np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2")[:, 0].astype(np.float32)


def halves_apart(nibbles: Bytes) -> Integers:
    """(blocks, 16) bytes -> (blocks, 32): the low halves first."""
    return np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.int32)


def bits_of(words: Bytes) -> Integers:
    """(blocks, 4) bytes -> (blocks, 32) bits, lowest first."""
    return np.unpackbits(np.ascontiguousarray(words), axis=1, bitorder="little").astype(np.int32)


def fields(data: Bytes, run: int, bits: int) -> Integers:
    """(blocks, bytes) -> (blocks, values): a run of bytes gives first all its lowest `bits`."""
    runs = data.reshape(len(data), -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return ((runs >> shifts) & ((1 << bits) - 1)).reshape(len(data), -1).astype(np.int32)


def joined(values: npt.NDArray[np.integer], run: int, bits: int) -> Bytes:
    """Undo `fields`."""
    apart = (values & ((1 << bits) - 1)).astype(np.uint8).reshape(len(values), -1, 8 // bits, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.bitwise_or.reduce(apart << shifts, axis=2).reshape(len(values), -1)


def pack(format: str, b: Blocks) -> Bytes:
    """Undo `unpack`, for blocks of 256: (blocks, bytes)."""
    d = b.d.astype("<f2").view(np.uint8).reshape(-1, 2)
    dmin = (-b.m).astype("<f2").view(np.uint8).reshape(-1, 2)
    s, t, codes = b.scales, b.minima, b.codes
    if format == "q2_k":
        parts = [(s | t << 4).astype(np.uint8), joined(codes, 32, 2), d, dmin]
    elif format == "q3_k":
        low, high = joined((s + 32) & 15, 8, 4), joined((s + 32) >> 4, 4, 2)
        parts = [joined((codes + 4) >> 2, 32, 1), joined(codes + 4, 32, 2), low, high, d]
    elif format in ("q4_k", "q5_k"):
        words = [s[:, :4] | s[:, 4:] >> 4 << 6, t[:, :4] | t[:, 4:] >> 4 << 6]
        words += [(s[:, 4:] & 15) | (t[:, 4:] & 15) << 4]
        fifth = [joined(codes >> 4, 32, 1)] if format == "q5_k" else []
        parts = [d, dmin, np.concatenate(words, axis=1).astype(np.uint8), *fifth]
        parts += [joined(codes, 32, 4)]
    elif format == "q6_k":
        parts = [joined(codes + 32, 64, 4), joined((codes + 32) >> 4, 32, 2)]
        parts += [s.astype(np.int8).view(np.uint8), d]
    else:
        indices = np.searchsorted(IQ4_VALUES, codes)
        nibbles = pack_nibbles(indices.reshape(-1, 32).astype(np.uint8)).reshape(-1, 128)
        parts = [d, joined((s + 32) >> 4, 1, 2), joined((s + 32) & 15, 1, 4), nibbles]
    return np.concatenate(parts, axis=1)


def quantize(format: str, x: npt.ArrayLike) -> Bytes:
    """Write values (..., columns) in a format; 1-D bytes. Columns are to be whole blocks."""
    values = np.ascontiguousarray(x, np.float32)
    if format == "f32":
        return values.astype("<f4").reshape(-1).view(np.uint8)
    if format == "f16":
        with np.errstate(over="ignore"):
            return values.astype("<f2").reshape(-1).view(np.uint8)
    if format == "bf16":
        return to_bf16(values).astype("<u2").reshape(-1).view(np.uint8)
    if values.shape[-1] % COLUMNS[format]:
        raise ValueError(f"{format} needs whole blocks, not {values.shape[-1]} columns")
    blocks = values.reshape(-1, COLUMNS[format])
    if format in SUPER_FORMATS:
        return pack(format, to_super_blocks(format, blocks)).reshape(-1)
    quantizers = {
        "q8_0": to_q8_0,
        "q4_0": to_q4_0,
        "q4_1": to_q4_1,
        "q5_0": to_q5_0,
        "q5_1": to_q5_1,
        "iq4_nl": to_iq4_nl,
        "mxfp4": to_mxfp4,
    }
    return quantizers[format](blocks).reshape(-1)


def to_bf16(x: Floats) -> npt.NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even; a NaN stays one, quiet."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet, rounded).astype(np.uint16)


def reciprocal(d: Floats) -> Floats:
    """1 / d in float32, and 0 for 0."""
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def to_q8_0(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 34). Rounds half away from zero, as C's `roundf`."""
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)  # (blocks, 1)
    scaled = (blocks * reciprocal(d)).astype(np.float64)  # float64: the next + 0.5 is exact
    codes = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8), codes.view(np.uint8)], axis=1)


def symmetric(blocks: Floats, offset: int) -> tuple[Bytes, Bytes]:
    """blocks: (blocks, 32) -> the f16 scale (blocks, 2) and codes (blocks, 32), 0 .. 2 offset - 1.

    The value of largest magnitude, with its sign, becomes code 0, i.e. -offset; the first if two
    tie. The codes divide by the float32 d, before it is rounded to f16 for the file.
    """
    largest = np.abs(blocks).argmax(axis=1)[:, None]
    d = np.take_along_axis(blocks, largest, axis=1) / np.float32(-offset)  # (blocks, 1)
    codes = np.floor(blocks * reciprocal(d) + np.float32(offset + 0.5))
    codes = np.minimum(2 * offset - 1, codes).astype(np.uint8)
    return d.astype("<f2").view(np.uint8), codes


def affine(blocks: Floats, largest: int) -> tuple[Bytes, Bytes]:
    """blocks: (blocks, 32) -> f16 scale and minimum (blocks, 4), and codes (blocks, 32).

    The smallest value becomes code 0, the largest `largest`.
    """
    low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    d = (high - low) / np.float32(largest)  # (blocks, 1)
    codes = np.floor((blocks - low) * reciprocal(d) + np.float32(0.5))
    codes = np.minimum(largest, codes).astype(np.uint8)
    return np.concatenate([d, low], axis=1).astype("<f2").view(np.uint8), codes


def to_q4_0(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 18)."""
    d, codes = symmetric(blocks, 8)
    return np.concatenate([d, pack_nibbles(codes)], axis=1)


def to_q4_1(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 20)."""
    scales, codes = affine(blocks, 15)
    return np.concatenate([scales, pack_nibbles(codes)], axis=1)


def to_q5_0(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 22)."""
    d, codes = symmetric(blocks, 16)
    return np.concatenate([d, fifth_bits(codes), pack_nibbles(codes & 15)], axis=1)


def to_q5_1(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 24)."""
    scales, codes = affine(blocks, 31)
    return np.concatenate([scales, fifth_bits(codes), pack_nibbles(codes & 15)], axis=1)


def to_mxfp4(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 17).

    The exponent that makes the largest magnitude at least 4, as the specification has it; of two
    values equally near, the one of the lower code.
    """
    amax = np.abs(blocks).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        e = np.where(amax > 0, np.floor(np.log2(amax)) - 2 + 127, 0).astype(np.uint8)
    d = np.exp2(e.astype(np.float64) - 128).astype(np.float32)
    errors = np.abs(d[..., None] * E2M1.astype(np.float32) - blocks[..., None])
    return np.concatenate([e, pack_nibbles(errors.argmin(axis=2).astype(np.uint8))], axis=1)


def to_iq4_nl(blocks: Floats) -> Bytes:
    """blocks: (blocks, 32) -> (blocks, 18). Simple: ggml searches for a better scale."""
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    nearest = nearest_iq4(blocks * reciprocal(d))
    return np.concatenate([d.astype("<f2").view(np.uint8), pack_nibbles(nearest)], axis=1)


def nearest_iq4(x: Floats) -> Bytes:
    """Return the indices of the nearest of IQ4_VALUES."""
    return np.abs(x[..., None] - IQ4_VALUES).argmin(axis=-1).astype(np.uint8)


def to_super_blocks(format: str, blocks: Floats) -> Blocks:
    """blocks: (blocks, 256). The simplest rounding there is: ggml searches for better scales."""
    count = len(blocks)
    subs = blocks.reshape(count, 8 if format in ("q4_k", "q5_k", "iq4_xs") else 16, -1)
    most = {"q2_k": 15, "q3_k": 31, "q4_k": 63, "q5_k": 63, "q6_k": 127, "iq4_xs": 31}[format]
    if len(HALVES[format]) == 2:
        largest = {"q2_k": 3, "q4_k": 15, "q5_k": 31}[format]
        low = np.minimum(subs.min(axis=2), 0)
        scale, minimum = (np.maximum(subs.max(axis=2), 0) - low) / largest, np.abs(low)
        d, dmin = (rounded_to_half(v.max(axis=1, keepdims=True) / most) for v in (scale, minimum))
        scales, minima = (
            np.rint(v * reciprocal(u)).clip(0, most).astype(np.int32)
            for v, u in ((scale, d), (minimum, dmin))
        )
        shifted = subs + (dmin * minima.astype(np.float32))[..., None]
        codes = np.rint(shifted * reciprocal(d * scales.astype(np.float32))[..., None])
        codes = codes.clip(0, largest).astype(np.int32).reshape(count, 256)
        return Blocks(codes, d[:, 0], scales, -dmin[:, 0], minima, True)
    reach = {"q3_k": 4, "q6_k": 32, "iq4_xs": 127}[format]
    index = np.abs(subs).argmax(axis=2)[..., None]
    scale = np.take_along_axis(subs, index, axis=2)[..., 0] / -np.float32(reach)  # to -reach
    d = rounded_to_half(np.abs(scale).max(axis=1, keepdims=True) / most)
    scales = np.rint(scale * reciprocal(d)).clip(-most, most).astype(np.int32)
    scaled = subs * reciprocal(d * scales.astype(np.float32))[..., None]
    if format == "iq4_xs":
        codes = IQ4_VALUES[nearest_iq4(scaled)]
    else:
        codes = np.rint(scaled).clip(-reach, reach - 1).astype(np.int32)
    nothing = np.zeros_like(scales)
    return Blocks(codes.reshape(count, 256), d[:, 0], scales, np.zeros(count, "f"), nothing, False)


def rounded_to_half(x: Floats) -> Floats:
    return x.astype(np.float16).astype(np.float32)


def fifth_bits(codes: Bytes) -> Bytes:
    """(blocks, 32) codes of five bits -> (blocks, 4) bytes of their highest."""
    return np.packbits(codes >> 4, axis=1, bitorder="little")


def pack_nibbles(codes: Bytes) -> Bytes:
    """(blocks, 32) values of 0..15 -> (blocks, 16) bytes."""
    return codes[:, :16] | (codes[:, 16:] << 4)


class QuantizedActivations(NamedTuple):
    codes: npt.NDArray[np.int8]  # (tokens, columns), -127..127
    scales: Floats  # (tokens, columns / block)
    sums: npt.NDArray[np.int32]  # (tokens, columns / block): the sum of a block's codes


def quantize_activations(x: npt.ArrayLike, block: int = BLOCK) -> QuantizedActivations:
    """Round activations (tokens, columns) to int8, each `block` values by their own scale.

    scale = amax / 127; codes = rint(x * (127 / amax)), ties to even, in float32 throughout. Below
    an amax of 1e-30 the scale and the codes are 0, since 127 / amax would overflow.
    """
    values = np.ascontiguousarray(x, np.float32)
    blocks = values.reshape(*values.shape[:-1], -1, block)  # (tokens, columns / block, block)
    amax = np.abs(blocks).max(axis=-1)  # (tokens, columns / block)
    alive = amax >= np.float32(1e-30)
    scales = np.where(alive, amax / np.float32(127), np.float32(0))
    inverse = np.divide(np.float32(127), amax, out=np.zeros_like(amax), where=alive)
    codes = np.clip(np.rint(blocks * inverse[..., None]), -127, 127).astype(np.int8)
    return QuantizedActivations(
        codes.reshape(values.shape), scales, codes.sum(axis=-1, dtype=np.int32)
    )


def round_activations(x: npt.ArrayLike, block: int = BLOCK) -> Floats:
    """Send activations (tokens, columns) through int8 and back; float32."""
    codes, scales, _ = quantize_activations(x, block)
    return codes.astype(np.float32) * np.repeat(scales, block, axis=-1)
