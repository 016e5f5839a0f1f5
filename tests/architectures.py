"""Tiny random models of every architecture: as transformers saves them, and as llama.cpp converts.

Knows `transformers` and `gguf`, whose own tables name tensors and keys; knows nothing of inferno.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import checkpoints
from checkpoints import Array, Tensors
from reference import forward, quantization

WINDOW = 24  # of the models that have one
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, **HEADS}
TOKENS = {"vocab_size": checkpoints.VOCAB_SIZE, "bos_token_id": 1, "eos_token_id": 2}
COMMON = {**SIZES, **TOKENS, "pad_token_id": 2, "max_position_embeddings": 256}
LOCAL_GLOBAL = ["sliding_attention", "full_attention"] * 2


@dataclass(frozen=True)
class Architecture:
    """`config` is the name of transformers' config class, `gguf` that of `general.architecture`."""

    config: str
    gguf: str
    options: Mapping[str, Any] = field(default_factory=dict)
    unit_offset: bool = False  # norms are stored as their distance from 1
    interleaved: bool = False  # llama.cpp's converter reorders the rows of q and k


ARCHITECTURES = {
    "llama": Architecture("LlamaConfig", "llama", {"head_dim": 16}, interleaved=True),
    "mistral": Architecture(
        "MistralConfig", "llama", {"sliding_window": WINDOW, "head_dim": 16}, interleaved=True
    ),
    "qwen2": Architecture("Qwen2Config", "qwen2"),
    "qwen3": Architecture("Qwen3Config", "qwen3", {"head_dim": 24}),
    "gemma": Architecture(
        "GemmaConfig",
        "gemma",
        {"head_dim": 24, "hidden_act": "gelu_pytorch_tanh"},
        unit_offset=True,
    ),
    "gemma2": Architecture(
        "Gemma2Config",
        "gemma2",
        {
            "head_dim": 24,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 24,
            # Scores and logits of random weights are small: low limits bend them.
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0,
        },
        unit_offset=True,
    ),
    "gemma3_text": Architecture(
        "Gemma3TextConfig",
        "gemma3",
        {
            "head_dim": 24,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 24,
            "num_hidden_layers": 7,
        },
        unit_offset=True,
    ),
    "phi3": Architecture("Phi3Config", "phi3", {"sliding_window": WINDOW}),
    "smollm3": Architecture("SmolLM3Config", "smollm3", {}, interleaved=True),
    "olmo2": Architecture("Olmo2Config", "olmo2"),
    "granite": Architecture(
        "GraniteConfig",
        "granite",
        {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "logits_scaling": 2.0,
        },
        interleaved=True,
    ),
    "mixtral": Architecture(
        "MixtralConfig",
        "llama",
        {"num_local_experts": 5, "num_experts_per_tok": 2},
        interleaved=True,
    ),
    "qwen3_moe": Architecture(
        "Qwen3MoeConfig",
        "qwen3moe",
        {
            "num_experts": 7,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "head_dim": 16,
            "norm_topk_prob": True,
        },
    ),
    "gpt_oss": Architecture(
        "GptOssConfig",
        "gpt-oss",
        {
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "swiglu_limit": 1.5,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150_000.0,
                "factor": 8.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "original_max_position_embeddings": 32,
                "truncate": False,
            },
        },
    ),
}


def tiny_config(model_type: str, **options: Any) -> Any:
    """Build transformers' config of a tiny model; `options` come before those of the table."""
    import transformers

    architecture = ARCHITECTURES[model_type]
    return getattr(transformers, architecture.config)(
        **{**COMMON, **architecture.options, **options}
    )


def save(
    path: Path, model_type: str, *, seed: int = 0, dtype: str = "float32", **options: Any
) -> Path:
    """Save a random model as transformers does, beside the tiny byte-level tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    config = tiny_config(model_type, **options)
    model = AutoModelForCausalLM.from_config(config)
    generator = np.random.default_rng(seed)
    state = {
        name: torch.from_numpy(_random(generator, model_type, name, tuple(value.shape)))
        for name, value in model.state_dict().items()
        if name != "lm_head.weight" or not config.tie_word_embeddings
    }
    model.load_state_dict(state, strict=False)
    model.to(getattr(torch, dtype)).save_pretrained(path)
    checkpoints.save_tokenizer(path, config)
    return path


def _random(
    generator: np.random.Generator, model_type: str, name: str, shape: tuple[int, ...]
) -> Array:
    values = generator.standard_normal(shape, np.float32)
    if name.endswith("norm.weight"):
        values = values / 4 + (0 if ARCHITECTURES[model_type].unit_offset else 1)
    elif name.endswith("bias"):
        values = values / 4
    elif len(shape) > 1 and "embed_tokens" not in name:
        # gpt-oss keeps its experts as (inputs, outputs).
        transposed = model_type == "gpt_oss" and len(shape) == 3
        values = values / np.sqrt(np.float32(shape[-2 if transposed else -1]))
    return values.astype(np.float32)


# --------------------------------------------------------------------------- GGUF


def read(directory: Path) -> tuple[Any, Tensors]:
    """Read what `save` wrote: config, and float32 tensors with each expert's under its own name."""
    config, tensors = checkpoints.read_directory(directory)
    return config, _split_experts(tensors)


def rounded(tensors: Tensors, format: str) -> Tensors:
    """Return the tensors as `save_gguf` keeps them."""
    found = {}
    for name, values in tensors.items():
        router = name.endswith((".gate.weight", ".router.weight"))
        stored = "f32" if router else _stored_format(values, format)
        data = quantization.quantize(stored, values)
        found[name] = quantization.dequantize(stored, data, values.shape)
    return found


def _stored_format(values: Array, format: str) -> str:
    if values.ndim == 1:
        return "f32"
    return "f16" if format.startswith("q") and values.shape[-1] % 32 else format


def save_gguf(
    path: Path, directory: Path, *, format: str = "f32", experts: str | None = None
) -> Path:
    """Convert a directory that `save` wrote, as llama.cpp's converter would.

    `experts` is the format of those, if it is another.
    """
    import gguf

    config, tensors = checkpoints.read_directory(directory)
    architecture = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, architecture.gguf)
    writer.add_name(f"tiny {config.model_type}")
    writer.add_quantization_version(2)
    _add_hyperparameters(writer, config, architecture)
    checkpoints.add_byte_level_tokenizer(writer, config)
    for name, values in _converted(config, tensors).items():
        plain = name.endswith("bias") or "ffn_gate_inp" in name
        wanted = experts if experts and "_exps.weight" in name else format
        stored = "f32" if plain else _stored_format(values, wanted)
        kind = gguf.GGMLQuantizationType[stored.upper()]
        rows = values.reshape(-1, values.shape[-1])
        if stored == "mxfp4":  # of which the package has no encoder
            data = quantization.quantize(stored, rows)
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(rows), kind)
        writer.add_tensor(name, data.reshape(*values.shape[:-1], -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _converted(config: Any, tensors: Tensors) -> Tensors:
    """Rename, reorder and stack tensors."""
    import gguf

    architecture = ARCHITECTURES[config.model_type]
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(kinds[architecture.gguf], config.num_hidden_layers)
    stacks: dict[str, dict[int, Array]] = {}
    converted: Tensors = {}
    for name, values in _split_experts(tensors).items():
        if architecture.unit_offset and name.endswith("norm.weight"):
            values = values + 1
        if architecture.interleaved and re.search(r"\.[qk]_proj\.", name):
            heads = config.num_attention_heads
            heads = heads if ".q_proj." in name else config.num_key_value_heads
            values = forward.interleaved(values, heads)
        if expert := re.search(r"\.experts\.(\d+)\.", name):
            stacked = name.replace(f"experts.{expert[1]}.", "experts.")
            stacks.setdefault(stacked, {})[int(expert[1])] = values
            continue
        converted[_gguf_name(table, name)] = values
    for name, members in stacks.items():
        converted[_gguf_name(table, name)] = np.stack([members[e] for e in sorted(members)])
    scaling = config.rope_parameters
    if scaling.get("rope_type") == "llama3":
        # What the scaling divides each frequency by, as a tensor.
        plain = SimpleNamespace(
            **{**vars(config), "rope_parameters": {"rope_theta": scaling["rope_theta"]}}
        )
        factors = forward.inverse_frequencies(plain) / forward.inverse_frequencies(config)
        converted["rope_freqs.weight"] = factors.astype(np.float32)
    if scaling.get("rope_type") == "longrope":
        for key in ("long", "short"):
            factors = np.array(config.rope_parameters[f"{key}_factor"], np.float32)
            converted[f"rope_factors_{key}.weight"] = factors
    return converted


def _gguf_name(table: Any, name: str) -> str:
    if name.endswith(".sinks"):
        name += ".weight"
    found = table.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return str(found)


def _split_experts(tensors: Tensors) -> Tensors:
    """Take gpt-oss's (experts, inputs, outputs) apart: gate and up take turns in the outputs."""
    found: Tensors = {}
    for name, values in tensors.items():
        stem, _, last = name.rpartition(".")
        if not stem.endswith("mlp.experts"):
            found[name] = values
            continue
        kind = "bias" if last.endswith("_bias") else "weight"
        values = values if kind == "bias" else values.transpose(0, 2, 1)
        if last.startswith("gate_up_proj"):
            parts = {"gate_proj": values[:, 0::2], "up_proj": values[:, 1::2]}
        else:
            parts = {"down_proj": values}
        for part, stack in parts.items():
            for expert, one in enumerate(stack):
                found[f"{stem}.{expert}.{part}.{kind}"] = one
    return found


def _add_hyperparameters(writer: Any, config: Any, architecture: Architecture) -> None:
    """Write a config's numbers under GGUF's keys, those that the converter of the family writes."""
    import gguf

    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None)
    head_dim = head_dim or config.hidden_size // config.num_attention_heads
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    model_type = config.model_type
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if model_type == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if experts := getattr(config, "num_local_experts", 0):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        if model_type in ("qwen3_moe", "gpt_oss"):
            width = getattr(config, "moe_intermediate_size", config.intermediate_size)
            writer.add_expert_feed_forward_length(width)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(scale) / np.log(original))))
