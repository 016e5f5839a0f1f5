"""config.json and the files beside it → ModelConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.config import FULL, SLIDING, ModelConfig
from inferno.config.features import (
    GATE_BIAS,
    Q_BIAS,
    check_supported,
    defaults_of,
    partial_rotary_factor,
    read_features,
    refuse_unused,
)
from inferno.config.sampling_defaults import generation_defaults
from inferno.config.stop_tokens import added_end_tokens, union
from inferno.config.values import MAX_CONTEXT, MAX_LAYERS, MAX_SIZE, Values
from inferno.errors import UnsupportedModel
from inferno.excerpt import quoted, shown


def read_config_json(
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
) -> ModelConfig:
    """Read what `ModelConfig.from_huggingface` reads."""
    c = Values(config, "config.json")
    model_type = c.text("model_type")
    architectures = config.get("architectures") or [model_type]
    architecture = architectures[0] if isinstance(architectures, list) else architectures
    if not isinstance(architecture, str):
        raise c.error("architectures", "a list of names", architectures)
    check_supported(model_type, architecture)
    if config.get("architectures") and not architecture.endswith("ForCausalLM"):
        raise UnsupportedModel(
            f"Architecture {quoted(architecture)} is not supported: it does not generate text",
            hint="pick a model whose architecture ends in ForCausalLM",
        )
    _refuse_features(config)
    c = Values(config, "config.json", defaults=defaults_of(model_type))

    hidden_size = c.integer("hidden_size", MAX_SIZE)
    num_attention_heads = c.integer("num_attention_heads", MAX_SIZE)
    if config.get("head_dim") is None and hidden_size % num_attention_heads:
        raise c.error(
            "hidden_size",
            f"a multiple of num_attention_heads = {num_attention_heads}",
            hidden_size,
        )
    rope_theta, rope_scaling, rope_local_base_freq = _rope(c)
    num_hidden_layers = c.integer("num_hidden_layers", MAX_LAYERS)
    intermediate_size = c.integer("intermediate_size", MAX_SIZE)
    features = read_features(c, num_hidden_layers, intermediate_size)
    features["partial_rotary_factor"] = partial_rotary_factor(c)
    features["rope_local_base_freq"] = rope_local_base_freq
    max_position_embeddings = c.integer("max_position_embeddings", MAX_CONTEXT, 2048)
    refuse_unused(model_type, features, c, max_position_embeddings)
    activation = "hidden_activation" if config.get("hidden_activation") else "hidden_act"
    return ModelConfig(
        model_type=model_type,
        architecture=architecture,
        vocab_size=c.integer("vocab_size", MAX_SIZE),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        num_key_value_heads=c.integer("num_key_value_heads", MAX_SIZE, num_attention_heads),
        head_dim=c.integer("head_dim", MAX_SIZE, hidden_size // num_attention_heads),
        max_position_embeddings=max_position_embeddings,
        rms_norm_eps=c.number("rms_norm_eps", 1.0, 1e-6),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        hidden_act=c.text(activation, "silu"),
        tie_word_embeddings=c.boolean("tie_word_embeddings", False),
        attention_bias=c.boolean("attention_bias", Q_BIAS in shapes),
        mlp_bias=c.boolean("mlp_bias", GATE_BIAS in shapes),
        bos_token_id=c.token("bos_token_id"),
        eos_token_ids=union(
            c.tokens("eos_token_id"),
            Values(generation_config, "generation_config.json").tokens("eos_token_id"),
            added_end_tokens(tokenizer_config),
        ),
        generation=generation_defaults(generation_config),
        raw=config,
        **features,
    )


def _refuse_features(config: Mapping[str, Any]) -> None:
    """Refuse what config.json can switch on and would change every result in silence."""
    found = config.get("quantization_config")
    method = found.get("quant_method") if isinstance(found, dict) else found
    # gpt-oss's experts are MXFP4, which is a format of tensors here and no feature.
    if found and (method, config.get("model_type")) != ("mxfp4", "gpt_oss"):
        raise UnsupportedModel(
            f"`quantization_config`: checkpoints quantized with {shown(method)} are not supported",
            hint="pick the unquantized model, or a Q8_0 or Q4_0 GGUF of it",
        )
    if config.get("use_bidirectional_attention"):
        raise UnsupportedModel(
            "`use_bidirectional_attention`: attention to later tokens is not supported"
        )
    if config.get("swiglu_alpha") not in (None, 1.702):
        raise UnsupportedModel(
            f"`swiglu_alpha`: expected 1.702, found {shown(config['swiglu_alpha'])}"
        )


def _rope(c: Values) -> tuple[float, dict[str, Any] | None, float | None]:
    """Return theta and the scaling, from `rope_parameters` (transformers 5) or the older keys.

    And the theta of layers with a window, where that is another.
    """
    key = "rope_parameters" if c.values.get("rope_parameters") is not None else "rope_scaling"
    found = c.values.get(key)
    parameters = {} if found is None else found
    if not isinstance(parameters, dict):
        raise c.error(key, "an object", found)
    local = c.optional_number("rope_local_base_freq", 1e12)
    if parameters and all(isinstance(value, dict) for value in parameters.values()):
        if set(parameters) != {FULL, SLIDING} or parameters[SLIDING].get("rope_type") not in (
            None,
            "default",
        ):
            raise UnsupportedModel(
                f"`{key}`: RoPE that varies by layer is not supported but for plain RoPE in the "
                "layers with a window"
            )
        local = Values(parameters[SLIDING], c.source).number("rope_theta", 1e12)
        parameters = parameters[FULL]
    scaling = dict(parameters)
    inner_theta = scaling.pop("rope_theta", None)
    scaling.pop("partial_rotary_factor", None)
    outer_theta = c.values.get("rope_theta")
    if None not in (inner_theta, outer_theta) and inner_theta != outer_theta:
        raise c.error("rope_theta", f"{shown(inner_theta)} as in {key}", outer_theta)
    theta = Values(
        {"rope_theta": outer_theta if inner_theta is None else inner_theta}, c.source
    ).number("rope_theta", 1e12, c.defaults.get("rope_theta", 10_000.0))

    old, new = scaling.pop("type", None), scaling.pop("rope_type", None)
    if None not in (old, new) and old != new:
        raise c.error(key, f"`type` and `rope_type` to agree on {shown(new)}", old)
    rope_type = old if new is None else new
    if rope_type is None and scaling:
        raise c.error(key, "a `rope_type`", found)
    if rope_type in (None, "default"):
        return theta, None, local
    if not isinstance(rope_type, str):
        raise c.error(key, "a `rope_type` that is text", rope_type)
    if "short_factor" in scaling:
        rope_type = "longrope"  # early Phi-3 files call it su or yarn
    original = "original_max_position_embeddings"
    if scaling.get(original) is None and c.values.get(original) is not None:
        scaling[original] = c.integer(original, MAX_CONTEXT)
    return theta, {"rope_type": rope_type, **scaling}, local
