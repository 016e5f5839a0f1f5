"""What only some families have, and which family goes by what: the rest is refused.

A feature that a model's file passes over in silence would change every result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inferno.config import FULL, SLIDING, ModelConfig
from inferno.config.values import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_SIZE, Values
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.excerpt import quoted, shown

# What a model's file has to name in `USES`. What comes with another of them is not named apart.
FEATURES = frozenset(
    {
        "sliding_window",
        "partial_rotary_factor",
        "rope_local_base_freq",
        "no_rope_layers",
        "query_pre_attn_scalar",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "embedding_multiplier",
        "attention_multiplier",
        "residual_multiplier",
        "logits_scaling",
        "num_experts",
        "mlp_only_layers",
        "swiglu_limit",
    }
)

# Tensors whose presence tells what a file does not say.
Q_BIAS = "model.layers.0.self_attn.q_proj.bias"
GATE_BIAS = "model.layers.0.mlp.gate_proj.bias"


def read_features(c: Values, layers: int, intermediate_size: int) -> dict[str, Any]:
    """Read what only some families have, under the fields of `ModelConfig`."""
    sliding_window = c.integer("sliding_window", MAX_CONTEXT, 0, low=0) or None
    # Qwen names a window that `use_sliding_window` turns off, and transformers goes by that.
    if not c.boolean("use_sliding_window", True):
        sliding_window = None
    layer_types = _layer_types(c, layers, sliding_window)
    experts = "num_local_experts" if c.has("num_local_experts") else "num_experts"
    num_experts = c.integer(experts, MAX_EXPERTS, 0, low=0)
    features: dict[str, Any] = {
        "sliding_window": sliding_window if SLIDING in layer_types else None,
        "layer_types": layer_types if SLIDING in layer_types else (),
        "no_rope_layers": _no_rope_layers(c, layers),
        "query_pre_attn_scalar": c.optional_number("query_pre_attn_scalar"),
        "attn_logit_softcapping": c.optional_number("attn_logit_softcapping"),
        "final_logit_softcapping": c.optional_number("final_logit_softcapping"),
        "embedding_multiplier": c.number("embedding_multiplier", 1e6, 1.0),
        "attention_multiplier": c.optional_number("attention_multiplier"),
        "residual_multiplier": c.number("residual_multiplier", 1e6, 1.0),
        "logits_scaling": c.number("logits_scaling", 1e6, 1.0),
        "num_experts": num_experts,
    }
    if num_experts:
        sparse_step = c.integer("decoder_sparse_step", MAX_LAYERS, 1)
        dense = c.items("mlp_only_layers", int)
        features |= {
            "num_experts_per_tok": c.integer("num_experts_per_tok", MAX_EXPERTS),
            "moe_intermediate_size": c.integer(
                "moe_intermediate_size", MAX_SIZE, intermediate_size
            ),
            "norm_topk_prob": c.boolean("norm_topk_prob", False),
            "mlp_only_layers": tuple(
                i for i in range(layers) if i in dense or (i + 1) % sparse_step
            ),
            "swiglu_limit": c.number("swiglu_limit", 1e6) if c.is_set("swiglu_limit") else 0.0,
        }
    return features


def _layer_types(c: Values, layers: int, sliding_window: int | None) -> tuple[str, ...]:
    types = c.items("layer_types", str)
    if types:
        strange = [kind for kind in types if kind not in (SLIDING, FULL)]
        if strange:
            raise UnsupportedModel(
                f"`layer_types`: layers of {shown(strange[0])} are not supported "
                f"(supported: {FULL}, {SLIDING})"
            )
        if len(types) != layers:
            raise c.error("layer_types", f"one of each of {layers} layers", types)
        if sliding_window is None and SLIDING in types and c.boolean("use_sliding_window", True):
            raise c.error("sliding_window", "the width of the window of `layer_types`", None)
        return tuple(types)
    if sliding_window is None:
        return (FULL,) * layers
    if "max_window_layers" in c.defaults:
        first = c.integer("max_window_layers", MAX_CONTEXT, low=0)
        return tuple(SLIDING if i >= first else FULL for i in range(layers))
    pattern: Any = c.get("sliding_window_pattern", 0)
    if isinstance(pattern, list):  # GGUF: of each layer, whether it slides
        if len(pattern) < layers or not all(type(kind) in (bool, int) for kind in pattern):
            raise c.error("sliding_window_pattern", f"one value for each of {layers}", pattern)
        return tuple(SLIDING if kind else FULL for kind in pattern[:layers])
    every = c.integer("sliding_window_pattern", MAX_LAYERS, 0, low=0)
    return tuple(FULL if every and (i + 1) % every == 0 else SLIDING for i in range(layers))


def _no_rope_layers(c: Values, layers: int) -> tuple[int, ...]:
    flags = c.items("no_rope_layers", int)
    if flags:
        if len(flags) != layers or not set(flags) <= {0, 1}:
            raise c.error("no_rope_layers", f"a 0 or 1 for each of {layers} layers", flags)
        return tuple(flags) if 0 in flags else ()
    if not c.is_set("no_rope_layer_interval"):
        return ()
    every = c.integer("no_rope_layer_interval", MAX_LAYERS)
    return tuple(int((i + 1) % every != 0) for i in range(layers))


def partial_rotary_factor(c: Values) -> float:
    """Return which part of a head is rotated, from wherever a config.json says it."""
    for where in (c.values.get("rope_parameters"), c.values.get("rope_scaling"), c.values):
        if isinstance(where, Mapping) and where.get("partial_rotary_factor") is not None:
            return Values(where, c.source).number("partial_rotary_factor", 1.0)
    return 1.0


def _supported() -> Sequence[str]:
    from inferno.models import supported  # late: it looks through the files of its folder

    return supported()


def check_supported(model_type: str, architecture: str) -> None:
    """Refuse an architecture that has no file in `models/`."""
    known = _supported()
    if model_type not in known:
        raise UnsupportedModel(
            f"Architecture {quoted(architecture)} is not supported (supported: {', '.join(known)})",
            hint="a model of another family, or another conversion of this one, may run",
        )


def defaults_of(model_type: str) -> Mapping[str, Any]:
    """Return what a config.json of this family may leave out."""
    from inferno.models import defaults_of  # late: models are written in terms of the config

    return defaults_of(model_type)


def refuse_unused(
    model_type: str, features: dict[str, Any], c: Values, max_position_embeddings: int
) -> None:
    """Refuse a feature that the model's file would pass over in silence."""
    from inferno.models import uses_of

    uses = uses_of(model_type)
    if (features["sliding_window"] or 0) >= max_position_embeddings and (
        "sliding_window" not in uses
    ):
        features |= {"sliding_window": None, "layer_types": ()}  # it shows all there can be
    for name in FEATURES - uses:
        value = features.get(name, getattr(ModelConfig, name))
        if value != getattr(ModelConfig, name):
            raise UnsupportedModel(
                f"`{c.name(name)}` in {c.source}: {shown(value)} is not supported for "
                f"`{model_type}`",
                hint="a model of another family, or another conversion of this one, may run",
            )
    if "num_experts" in uses and not features.get("num_experts"):
        raise InvalidCheckpoint(f"`{c.name('num_experts')}` is missing from {c.source}")
