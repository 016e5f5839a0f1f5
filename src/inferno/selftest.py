"""Do all instruction sets of this CPU compute the same bits? A whole forward pass answers.

The model is random, tiny, and made here; one layer has every kernel in it.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np

from inferno import _native
from inferno.loading import PACKED_FORMATS

# Uneven on purpose: a vocabulary and a head that end within a tile, a tail of tokens in each
# register tile, more positions than one step of the softmax. Blocks want widths in 32s.
_VOCAB, _HIDDEN, _HEADS, _KV_HEADS, _HEAD_DIM, _FFN, _TOKENS = 90, 64, 8, 2, 24, 160, 70


def isas() -> tuple[list[str], str]:
    """Return the instruction sets of this CPU, best first, and the one in use."""
    return _native.isas(), _native.choose_isa(os.environ.get("INFERNO_ISA", ""))


def same_bits(names: list[str]) -> dict[str, bool]:
    """Tell for each instruction set if its logits, in every weight format, equal `scalar`'s."""
    expected = _digest("scalar")
    return {name: _digest(name) == expected for name in names}


def _digest(isa: str) -> str:
    digest = hashlib.sha256()
    for format, *_ in _native.formats():
        digest.update(_logits(isa, format).tobytes())
    return digest.hexdigest()


def _logits(isa: str, format: str) -> np.ndarray:
    pool = _native.ThreadPool(2)
    draw = np.random.default_rng(7)
    q, kv = _HEADS * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    plan = _native.Plan(_VOCAB, 1, _KV_HEADS, _HEAD_DIM)
    facts = PACKED_FORMATS[format]
    kind = facts.activation
    shapes = [(_VOCAB, _HIDDEN), (q + 2 * kv, _HIDDEN), (_HIDDEN, q), (2 * _FFN, _HIDDEN),
              (_HIDDEN, _FFN)]  # fmt: skip
    embedding, qkv, o, gate_up, down = (
        plan.matrix(str(i), format, *shape) for i, shape in enumerate(shapes)
    )
    norm = plan.vector("norm", draw.standard_normal(_HIDDEN, dtype=np.float32))
    rope = plan.rope((100.0 ** -np.linspace(0, 1, _HEAD_DIM // 2)).astype(np.float32), 1.0)
    x, projected, attended, gated = (
        plan.rows(width, "tokens") for width in (_HIDDEN, q + 2 * kv, q, 2 * _FFN)
    )
    logits = plan.rows(_VOCAB, "selected")
    picked = plan.rows(_HIDDEN, "selected")
    wide, narrow, hidden, last = (
        plan.pack(kind, width, extent)
        for width, extent in (
            (_HIDDEN, "tokens"),
            (q, "tokens"),
            (_FFN, "tokens"),
            (_HIDDEN, "selected"),
        )
    )
    whole = (x, 0, _HIDDEN)
    plan.op("embed", output=whole, matrix=embedding)
    plan.op("rms_norm", input=whole, pack=wide, vector=norm, epsilon=1e-5)
    plan.op("linear", pack=wide, matrix=qkv, output=(projected, 0, q + 2 * kv))
    plan.op("attention", input=(projected, 0, q), second=(projected, q, kv),
            third=(projected, q + kv, kv), output=(attended, 0, q), layer=0, heads=_HEADS,
            kv_heads=_KV_HEADS, head_dim=_HEAD_DIM, rope=rope, scale=0.2)  # fmt: skip
    plan.op("pack", input=(attended, 0, q), pack=narrow)
    plan.op("linear", pack=narrow, matrix=o, output=whole, accumulate=True)
    plan.op("rms_norm", input=whole, pack=wide, vector=norm, epsilon=1e-5)
    plan.op("linear", pack=wide, matrix=gate_up, output=(gated, 0, 2 * _FFN))
    plan.op("silu_mul", input=(gated, 0, _FFN), second=(gated, _FFN, _FFN), pack=hidden)
    plan.op("linear", pack=hidden, matrix=down, output=whole, accumulate=True)
    plan.op("select", input=whole, output=(picked, 0, _HIDDEN))
    plan.op("rms_norm", input=(picked, 0, _HIDDEN), pack=last, vector=norm, epsilon=1e-5)
    plan.op("linear", pack=last, matrix=embedding, output=(logits, 0, _VOCAB))
    model = _native.Model(plan)
    for number, (rows, columns) in enumerate(shapes):
        if facts.encodes:
            weights = draw.standard_normal((rows, columns), dtype=np.float32)
            model.pack(pool, number, 0, rows, "f32", weights.reshape(-1).view(np.uint8))
        else:  # random codes, scales and minima of a quarter
            blocks = draw.integers(0, 256, (rows * columns // 32, facts.block_bytes), np.uint8)
            blocks[:, :4] = np.array([0.25, -0.25], "<f2").view(np.uint8)
            model.pack(pool, number, 0, rows, format, blocks.reshape(-1))
    cache = _native.KvCache(_native.PagePool(1, _KV_HEADS, _HEAD_DIM))
    executor = _native.Executor(model, pool, isa)
    ids = draw.integers(0, _VOCAB, _TOKENS).astype(np.int32)
    return executor.forward([(cache, ids, "all")])
