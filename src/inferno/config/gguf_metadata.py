"""GGUF metadata → ModelConfig: what Hugging Face says for what GGUF says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.config import ModelConfig
from inferno.config.features import (
    GATE_BIAS,
    Q_BIAS,
    check_supported,
    defaults_of,
    read_features,
    refuse_unused,
)
from inferno.config.sampling_defaults import gguf_sampling
from inferno.config.stop_tokens import control_end_tokens, union
from inferno.config.values import MAX_CONTEXT, MAX_LAYERS, MAX_SIZE, Values
from inferno.errors import UnsupportedModel
from inferno.excerpt import shown


def read_gguf_metadata(
    metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> ModelConfig:
    """Read what `ModelConfig.from_gguf` reads."""
    g = Values(metadata, "the GGUF metadata")
    architecture = g.text("general.architecture")
    model_type = _model_type(architecture, metadata)
    check_supported(model_type, architecture)
    defaults = defaults_of(model_type)
    g = Values(metadata, "the GGUF metadata", f"{architecture}.", defaults, _KEYS)

    hidden_size = g.integer("embedding_length", MAX_SIZE)
    num_attention_heads = g.integer("attention.head_count", MAX_SIZE)
    if metadata.get(f"{architecture}.attention.key_length") is None and (
        hidden_size % num_attention_heads
    ):
        raise g.error(
            "embedding_length", f"a multiple of head_count = {num_attention_heads}", hidden_size
        )
    head_dim = g.integer("attention.key_length", MAX_SIZE, hidden_size // num_attention_heads)
    found = g.integer("attention.value_length", MAX_SIZE, head_dim)
    if found != head_dim:
        raise UnsupportedModel(
            f"`{architecture}.attention.value_length`: expected head_dim = {head_dim}, "
            f"found {found}",
            hint="heads whose keys and values differ in size are not supported",
        )
    num_hidden_layers = g.integer("block_count", MAX_LAYERS)
    intermediate_size = g.integer("feed_forward_length", MAX_SIZE)
    features = read_features(g, num_hidden_layers, intermediate_size)
    features |= _gguf_features(g, architecture, head_dim, hidden_size // num_attention_heads)
    max_position_embeddings = g.integer("context_length", MAX_CONTEXT)
    refuse_unused(model_type, features, g, max_position_embeddings)
    tokenizer = Values(metadata, "the GGUF metadata", "tokenizer.ggml.")
    tokens = tokenizer.items("tokens", str)
    embedding = shapes.get("model.embed_tokens.weight", (0,))
    vocab_size = g.integer("vocab_size", MAX_SIZE, embedding[0] or len(tokens) or None)
    if len(tokens) > vocab_size:
        raise tokenizer.error("tokens", f"at most vocab_size = {vocab_size:,} of them", tokens)
    return ModelConfig(
        model_type=model_type,
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        num_key_value_heads=g.integer("attention.head_count_kv", MAX_SIZE, num_attention_heads),
        head_dim=head_dim,
        max_position_embeddings=max_position_embeddings,
        rms_norm_eps=g.number("attention.layer_norm_rms_epsilon", 1.0),
        rope_theta=g.number("rope_theta", 1e12, 10_000.0),
        rope_scaling=_rope_scaling(g, defaults),
        hidden_act=str(defaults.get("hidden_act", "silu")),
        tie_word_embeddings="lm_head.weight" not in shapes,
        attention_bias=Q_BIAS in shapes,
        mlp_bias=GATE_BIAS in shapes,
        bos_token_id=tokenizer.token("bos_token_id"),
        eos_token_ids=union(
            tokenizer.tokens("eos_token_id"),
            tokenizer.tokens("eot_token_id"),
            tokenizer.tokens("eom_token_id"),
            control_end_tokens(tokens, tokenizer.items("token_type", int)),
        ),
        generation=gguf_sampling(metadata),
        name=Values(metadata, "the GGUF metadata").text("general.name", ""),
        raw={
            key: value
            for key, value in metadata.items()
            if not isinstance(value, list) or len(value) <= _SMALL
        },
        **features,
    )


_SMALL = 64  # longest array that stays in `raw`

# GGUF's names of what `read_features` reads.
_KEYS = {
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "partial_rotary_factor": "rope.dimension_count",
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "norm_topk_prob": "expert_weights_norm",
}

# Values of GGUF keys with which a file computes what it would without them.
_HARMLESS = {
    "expert_weights_scale": (0, 1),
    "expert_shared_count": (0,),
    "expert_group_count": (0, 1),
    "leading_dense_block_count": (0,),
    "expert_gating_func": (0, 1, 3),  # softmax of all, or of the chosen: both are divided by sums
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_scale": (0,),
    "moe_every_n_layers": (0, 1),
    "router_logit_softcapping": (0,),
    "use_parallel_residual": (False,),
}

# Keys of layers with a window, which other layers have without the ending.
_SAME_WITH_A_WINDOW = ("attention.key_length", "attention.value_length", "rope.dimension_count")


def _model_type(architecture: str, metadata: Mapping[str, Any]) -> str:
    """Return what Hugging Face calls an architecture of GGUF."""
    if architecture == "llama" and metadata.get("llama.expert_count"):
        return "mixtral"
    names = {"gemma3": "gemma3_text", "gpt-oss": "gpt_oss", "qwen3moe": "qwen3_moe"}
    return names.get(architecture, architecture)


def _gguf_features(
    g: Values, architecture: str, head_dim: int, width_by_heads: int
) -> dict[str, Any]:
    """Return what GGUF says otherwise than config.json, or leaves to the architecture."""
    for key, harmless in _HARMLESS.items():
        value = g.values.get(g.prefix + key)
        if value is not None and value not in harmless:
            raise UnsupportedModel(f"`{g.prefix}{key}`: {shown(value)} is not supported")
    rotary_dim = g.integer("rope.dimension_count", MAX_SIZE, head_dim)
    for key in _SAME_WITH_A_WINDOW:
        everywhere = rotary_dim if key.startswith("rope.") else head_dim
        if g.integer(f"{key}_swa", MAX_SIZE, everywhere) != everywhere:
            raise UnsupportedModel(
                f"`{g.prefix}{key}_swa`: expected {everywhere} as in the other layers, "
                f"found {g.integer(f'{key}_swa', MAX_SIZE)}"
            )
    features: dict[str, Any] = {"partial_rotary_factor": rotary_dim / head_dim}
    local = g.optional_number("rope_local_base_freq", 1e12)
    # Converters say it of families, too, whose layers have one base.
    if "rope_local_base_freq" in g.defaults or local != g.number("rope_theta", 1e12, 10_000.0):
        features["rope_local_base_freq"] = local
    if architecture == "qwen3moe":
        features["norm_topk_prob"] = g.boolean("norm_topk_prob", True)
    if architecture in ("gemma2", "gemma3"):
        # The 27B models of both scale by width / heads, which no key of GGUF says: llama.cpp tells
        # them by their layers.
        is_27b = g.integer("block_count", MAX_LAYERS) == {"gemma2": 46, "gemma3": 62}[architecture]
        features["query_pre_attn_scalar"] = float(width_by_heads if is_27b else head_dim)
    return features


# GGUF's names below `{arch}.rope.scaling.`, and those in config.json.
_ROPE_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_attn_factor": "attention_factor",
    "yarn_ext_factor": "extrapolation_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
    "yarn_log_multiplier": "log_multiplier",
}


def _rope_scaling(g: Values, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    # Files from before `rope.scaling.*` have this one key.
    if g.values.get(f"{g.prefix}rope.scale_linear") is not None:
        factor = g.number("rope.scale_linear", 1e9)
        return None if factor == 1 else {"rope_type": "linear", "factor": factor}
    kind = g.text("rope.scaling.type", "none")
    scaling: dict[str, Any] = {"rope_type": kind}
    for theirs, ours in _ROPE_SCALING.items():
        if g.values.get(f"{g.prefix}rope.scaling.{theirs}") is not None:
            scaling[ours] = g.number(f"rope.scaling.{theirs}", 1e9)
    if kind == "none":
        return None
    if kind == "yarn":
        # Factors of the sharpening that the scaling implies, in ggml's arithmetic.
        for key in ("attention_factor", "extrapolation_factor", "log_multiplier"):
            if scaling.pop(key, 1) != 1:
                raise UnsupportedModel(f"`{g.prefix}rope.scaling`: a {key} is not supported")
        scaling |= defaults.get("rope_scaling", {})
    return scaling
