"""Do all instruction sets of this CPU compute the same bits? A whole forward pass answers.

The model is random, tiny, and made here; one layer has every kernel in it.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np

from inferno import _native
from inferno.loading import PACKED_FORMATS
from inferno.weights import FORMATS

# Uneven on purpose: a vocabulary and a head that end within a tile, a tail of tokens in each
# register tile, more positions than one step of the softmax.
_VOCAB, _KV_HEADS, _HEAD_DIM, _TOKENS = 90, 2, 24, 70
# Blocks want widths in 32s or 256s. By columns of a block: hidden size, heads, width of the MLP.
_SIZES = {32: (64, 8, 160), 256: (256, 32, 512)}


def isas() -> tuple[list[str], str]:
    """Return the instruction sets of this CPU, best first, and the one in use."""
    return _native.isas(), _native.choose_isa(os.environ.get("INFERNO_ISA", ""))


def same_bits(names: list[str]) -> dict[str, bool]:
    """Tell for each instruction set if its logits, in every weight format and with every type of
    cache, equal `scalar`'s."""
    expected = _digest("scalar")
    return {name: _digest(name) == expected for name in names}


def _digest(isa: str) -> str:
    digest = hashlib.sha256()
    for format, *_ in _native.formats():
        digest.update(_logits(isa, format).tobytes())
    for kv_cache in _native.cache_types():
        digest.update(_logits(isa, "q8_0", kv_cache).tobytes())
    return digest.hexdigest()


def _logits(isa: str, format: str, kv_cache: str = "f16") -> np.ndarray:
    pool = _native.ThreadPool(2)
    draw = np.random.default_rng(7)
    facts = PACKED_FORMATS[format]
    kind = facts.activation
    hidden, heads, ffn = _SIZES[facts.columns]
    q, kv = heads * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    plan = _native.Plan(_VOCAB, 1, _KV_HEADS, _HEAD_DIM)
    shapes = [(_VOCAB, hidden), (q + 2 * kv, hidden), (hidden, q), (2 * ffn, hidden),
              (hidden, ffn)]  # fmt: skip
    embedding, qkv, o, gate_up, down = (
        plan.matrix(str(i), format, *shape) for i, shape in enumerate(shapes)
    )
    norm = plan.vector("norm", draw.standard_normal(hidden, dtype=np.float32))
    rope = plan.rope((100.0 ** -np.linspace(0, 1, _HEAD_DIM // 2)).astype(np.float32), 1.0)
    x, projected, attended, gated = (
        plan.rows(width, "tokens") for width in (hidden, q + 2 * kv, q, 2 * ffn)
    )
    logits = plan.rows(_VOCAB, "selected")
    picked = plan.rows(hidden, "selected")
    wide, narrow, deep, last = (
        plan.pack(kind, width, extent)
        for width, extent in (
            (hidden, "tokens"),
            (q, "tokens"),
            (ffn, "tokens"),
            (hidden, "selected"),
        )
    )
    whole = (x, 0, hidden)
    plan.op("embed", output=whole, matrix=embedding)
    plan.op("rms_norm", input=whole, pack=wide, vector=norm, epsilon=1e-5)
    plan.op("linear", pack=wide, matrix=qkv, output=(projected, 0, q + 2 * kv))
    plan.op("attention", input=(projected, 0, q), second=(projected, q, kv),
            third=(projected, q + kv, kv), output=(attended, 0, q), layer=0, heads=heads,
            kv_heads=_KV_HEADS, head_dim=_HEAD_DIM, rope=rope, scale=0.2)  # fmt: skip
    plan.op("pack", input=(attended, 0, q), pack=narrow)
    plan.op("linear", pack=narrow, matrix=o, output=whole, accumulate=True)
    plan.op("rms_norm", input=whole, pack=wide, vector=norm, epsilon=1e-5)
    plan.op("linear", pack=wide, matrix=gate_up, output=(gated, 0, 2 * ffn))
    plan.op("silu_mul", input=(gated, 0, ffn), second=(gated, ffn, ffn), pack=deep)
    plan.op("linear", pack=deep, matrix=down, output=whole, accumulate=True)
    plan.op("select", input=whole, output=(picked, 0, hidden))
    plan.op("rms_norm", input=(picked, 0, hidden), pack=last, vector=norm, epsilon=1e-5)
    plan.op("linear", pack=last, matrix=embedding, output=(logits, 0, _VOCAB))
    model = _native.Model(plan)
    for number, (rows, columns) in enumerate(shapes):
        if facts.encodes:
            weights = draw.standard_normal((rows, columns), dtype=np.float32)
            model.pack(pool, number, 0, rows, "f32", weights.reshape(-1).view(np.uint8))
        else:
            blocks = _random_blocks(draw, format, rows * columns // facts.columns)
            model.pack(pool, number, 0, rows, format, blocks.reshape(-1))
    cache = _native.KvCache(_native.PagePool(1, _KV_HEADS, _HEAD_DIM, kv_cache))
    executor = _native.Executor(model, pool, isa)
    ids = draw.integers(0, _VOCAB, _TOKENS).astype(np.int32)
    return executor.forward([(cache, ids, "all")])


def _random_blocks(draw: np.random.Generator, format: str, count: int) -> np.ndarray:
    """Draw blocks (count, bytes) of random integers, with scales and minima of a quarter."""
    blocks = draw.integers(0, 256, (count, FORMATS[format].block_bytes), np.uint8)
    for offset, value in zip(FORMATS[format].halves, (0.25, -0.25), strict=False):
        blocks[:, offset : offset + 2] = np.array([value], "<f2").view(np.uint8)
    if format == "mxfp4":
        blocks[:, 0] = 125  # 2^-2
    return blocks
