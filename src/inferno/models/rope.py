"""Inverse frequencies of rotary position embedding (Su et al., arXiv:2104.09864, section 3.2.2)."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np

from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.graph import Floats

# Decimal computes the same digits on every system, which libm's pow does not. 30 digits are far
# more than the 8 that remain.
_CONTEXT = Context(prec=30)
_MAX_FLOAT = Decimal(float(np.finfo(np.float32).max))


def inverse_frequencies(c: ModelConfig) -> Floats:
    """Return theta^(-2i/d) for each pair i: (head_dim / 2,) f32.

    Raises:
        UnsupportedModel: the config asks for a scaling of the frequencies.
        InvalidCheckpoint: theta is so small that they overflow.
    """
    kind = (c.rope_scaling or {}).get("rope_type", "default")
    if kind != "default":
        raise UnsupportedModel(
            f"RoPE scaling `{kind}` is not supported (supported: default)",
            hint="long-context variants scale their frequencies; try the model's base version",
        )
    theta = Decimal(c.rope_theta)
    powers = [
        _CONTEXT.power(theta, _CONTEXT.divide(Decimal(-2 * i), Decimal(c.head_dim)))
        for i in range(c.head_dim // 2)
    ]
    if max(powers) > _MAX_FLOAT:
        raise InvalidCheckpoint(
            f"`rope_theta`: expected a base whose frequencies are finite, found {c.rope_theta:g}",
            hint="the config is damaged, or was edited by hand",
        )
    return np.array([float(p) for p in powers], dtype=np.float32)
