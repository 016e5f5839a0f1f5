"""Rotary position embedding: inverse frequencies, and how models stretch them to longer contexts.

Su et al., arXiv:2104.09864, section 3.2.2. Each kind of `rope_scaling` is a function here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np

from inferno.config import ModelConfig
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.excerpt import shown
from inferno.graph import Rope

# Decimal computes the same digits on every system, which libm's pow and log do not. 30 digits are
# far more than the 8 that remain.
_CONTEXT = Context(prec=30)
_MAX_FLOAT = Decimal(float(np.finfo(np.float32).max))

Frequencies = list[float]


def rope(c: ModelConfig, theta: float | None = None) -> Rope:
    """Return the rotation that the config asks for, or the plain one with base `theta`.

    Raises:
        UnsupportedModel: the kind of `rope_scaling` is unknown.
        InvalidCheckpoint: its numbers are missing, or make no frequencies.
    """
    if theta is not None:
        return _rope(_frequencies(c, Decimal(theta)))
    kind = (c.rope_scaling or {}).get("rope_type", "default")
    scale = _KINDS.get(kind)
    if scale is None:
        raise UnsupportedModel(
            f"RoPE scaling {shown(kind)} is not supported (supported: {', '.join(_KINDS)})",
            hint="long-context variants scale their frequencies; try the model's base version",
        )
    return scale(c, dict(c.rope_scaling or {}))


def _rope(frequencies: Frequencies, factor: float = 1.0) -> Rope:
    return Rope(np.array(frequencies, dtype=np.float32), factor)


def _frequencies(c: ModelConfig, theta: Decimal) -> Frequencies:
    """Return theta^(-2i/d) for each pair i of the d columns that are rotated."""
    powers = [
        _CONTEXT.power(theta, _CONTEXT.divide(Decimal(-2 * i), Decimal(c.rotary_dim)))
        for i in range(c.rotary_dim // 2)
    ]
    if max(powers) > _MAX_FLOAT:
        raise InvalidCheckpoint(
            f"`rope_theta`: expected a base whose frequencies are finite, found {c.rope_theta:g}",
            hint="the config is damaged, or was edited by hand",
        )
    return [float(p) for p in powers]


def _log(x: float) -> float:
    return float(_CONTEXT.ln(Decimal(x)))


def _number(scaling: dict[str, Any], key: str, default: float | None = None) -> float:
    value: Any = scaling.get(key)
    value = default if value is None else value
    if type(value) not in (int, float) or not 0 < value < 1e9:
        raise InvalidCheckpoint(
            f"`{key}` of `rope_scaling`: expected a positive number, found {shown(value)}",
            hint="the config is damaged, or was edited by hand",
        )
    return float(value)


def _factors(c: ModelConfig, scaling: dict[str, Any], key: str) -> Frequencies:
    """Return what each frequency is divided by."""
    values = scaling.get(key)
    numbers = list(values) if isinstance(values, (list, tuple)) else []
    if len(numbers) != c.rotary_dim // 2 or not all(
        type(v) in (int, float) and 0 < v < 1e9 for v in numbers
    ):
        raise InvalidCheckpoint(
            f"`{key}` of `rope_scaling`: expected {c.rotary_dim // 2} positive numbers, a rotary "
            f"pair each, found {f'{len(numbers)} values' if numbers else shown(values)}",
            hint="the config is damaged, or was edited by hand",
        )
    return [float(v) for v in numbers]


def _original_length(c: ModelConfig, scaling: dict[str, Any]) -> float:
    key = "original_max_position_embeddings"
    return _number(scaling, key, c.max_position_embeddings)


def _default(c: ModelConfig, scaling: dict[str, Any]) -> Rope:
    return _rope(_frequencies(c, Decimal(c.rope_theta)))


def _linear(c: ModelConfig, scaling: dict[str, Any]) -> Rope:
    """Positions are divided by the factor (Chen et al., arXiv:2306.15595)."""
    factor = _number(scaling, "factor")
    return _rope([f / factor for f in _frequencies(c, Decimal(c.rope_theta))])


def _frequency_factors(c: ModelConfig, scaling: dict[str, Any]) -> Rope:
    """GGUF's `rope_freqs.weight`: a divisor each."""
    factors = _factors(c, scaling, "factors")
    frequencies = _frequencies(c, Decimal(c.rope_theta))
    return _rope([f / factor for f, factor in zip(frequencies, factors, strict=True)])


def _dynamic(c: ModelConfig, scaling: dict[str, Any]) -> Rope:
    """The base grows with the length (NTK-aware scaling; transformers, `dynamic`).

    The length is the context that was asked for, and not that of the text so far: a token's key
    must not depend on what follows it.
    """
    factor, trained, d = _number(scaling, "factor"), c.max_position_embeddings, c.rotary_dim
    length = max(c.context, trained)
    if d <= 2:
        raise UnsupportedModel("RoPE scaling `dynamic` needs more than two rotary columns")
    stretch = Decimal(factor * length / trained - (factor - 1))
    power = _CONTEXT.power(stretch, _CONTEXT.divide(Decimal(d), Decimal(d - 2)))
    return _rope(_frequencies(c, _CONTEXT.multiply(Decimal(c.rope_theta), power)))


def _llama3(c: ModelConfig, scaling: dict[str, Any]) -> Rope:
    """Long waves are slowed by the factor, short ones kept, those between interpolated.

    Source: transformers, `_compute_llama3_parameters`.
    """
    factor, length = _number(scaling, "factor"), _original_length(c, scaling)
    low, high = _number(scaling, "low_freq_factor"), _number(scaling, "high_freq_factor")
    if high <= low:
        raise InvalidCheckpoint(
            f"`high_freq_factor` of `rope_scaling`: expected more than low_freq_factor = {low:g}, "
            f"found {high:g}"
        )

    def scaled(f: float) -> float:
        waves = length * f / (2 * math.pi)  # in the original context
        smooth = min(max((waves - low) / (high - low), 0.0), 1.0)
        return (1 - smooth) * f / factor + smooth * f

    return _rope([scaled(f) for f in _frequencies(c, Decimal(c.rope_theta))])


def _yarn(c: ModelConfig, scaling: dict[str, Any]) -> Rope:
    """YaRN: long waves interpolated, short ones kept, scores sharpened (arXiv:2309.00071)."""
    length, d = _original_length(c, scaling), c.rotary_dim
    factor = _number(scaling, "factor", c.max_position_embeddings / length)

    def sharpening(mscale: float) -> float:
        return 0.1 * mscale * _log(factor) + 1.0 if factor > 1 else 1.0

    attention_factor = sharpening(1.0)
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        attention_factor = sharpening(_number(scaling, "mscale"))
        attention_factor /= sharpening(_number(scaling, "mscale_all_dim"))

    def pair_of(rotations: float) -> float:
        """Return the pair that turns so often within the original context."""
        turns = _log(length / (rotations * 2 * math.pi))
        return d * turns / (2 * _log(c.rope_theta))

    low = pair_of(_number(scaling, "beta_fast", 32.0))
    high = pair_of(_number(scaling, "beta_slow", 1.0))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    high = high if high != low else high + 0.001  # as transformers has it

    def scaled(i: int, f: float) -> float:
        interpolated = min(max((i - low) / (high - low), 0.0), 1.0)
        return f / factor * interpolated + f * (1 - interpolated)

    frequencies = enumerate(_frequencies(c, Decimal(c.rope_theta)))
    return _rope(
        [scaled(i, f) for i, f in frequencies],
        _number(scaling, "attention_factor", attention_factor),
    )


def _longrope(c: ModelConfig, scaling: dict[str, Any]) -> Rope:
    """LongRoPE (arXiv:2402.13753): one list of divisors up to the original length, one beyond.

    As for `dynamic`, the context that was asked for decides, once and for all positions.
    """
    length = _original_length(c, scaling)
    factor = _number(scaling, "factor", c.max_position_embeddings / length)
    attention_factor = math.sqrt(1 + _log(factor) / _log(length)) if factor > 1 else 1.0
    divisors = _factors(c, scaling, "long_factor" if c.context > length else "short_factor")
    frequencies = _frequencies(c, Decimal(c.rope_theta))
    return _rope(
        [f / divisor for f, divisor in zip(frequencies, divisors, strict=True)],
        _number(scaling, "attention_factor", attention_factor),
    )


_KINDS: dict[str, Callable[[ModelConfig, dict[str, Any]], Rope]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
    "frequency_factors": _frequency_factors,
}
