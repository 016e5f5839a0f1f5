"""The GGUF names of tensors, and the Hugging Face names they go by here.

Source: `convert_hf_to_gguf.py` and gguf's tensor mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj",
    "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj",
}

_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

# What an architecture calls otherwise.
_LAYER_OF: Mapping[str, Mapping[str, str]] = {
    "gemma2": {**_POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"},
    "gemma3": {**_POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"},
    "olmo2": _POST_NORMS,
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "gpt-oss": {
        "post_attention_norm": "post_attention_layernorm",
        "attn_sinks": "self_attn.sinks",
        "ffn_gate_inp": "mlp.router",
    },
    # Mixtral goes by the name of Llama, which has no experts.
    "llama": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.*.w1",
        "ffn_up_exps": "block_sparse_moe.experts.*.w3",
        "ffn_down_exps": "block_sparse_moe.experts.*.w2",
    },
}

_TENSOR = re.compile(r"(?:blk\.(0|[1-9][0-9]{0,4})\.)?([a-z_]+)\.(weight|bias)")

# The architectures whose converter reorders the rows of q and k, so that rotary pairs are
# neighbours: the layout of Meta's own Llama checkpoints, which GGUF kept.
INTERLEAVED_ARCHITECTURES = frozenset({"granite", "llama", "smollm3"})


def huggingface_name(gguf_name: str, architecture: str = "llama") -> str:
    """Return the Hugging Face name of a tensor, or `gguf_name` itself if it has none.

    Where `*` stands in it, the tensor holds one of each expert.
    """
    match = _TENSOR.fullmatch(gguf_name)
    if match is None:
        return gguf_name
    layer, stem, kind = match.groups()
    if layer is None:
        name = _OUTER.get(stem)
        return gguf_name if name is None else f"{name}.{kind}"
    name = _LAYER_OF.get(architecture, {}).get(stem) or _LAYER.get(stem)
    if name is None:
        return gguf_name
    # Sinks are a tensor of their own, and no part of a layer with weight and bias.
    suffix = "" if stem == "attn_sinks" else f".{kind}"
    return f"model.layers.{layer}.{name}{suffix}"


def gguf_name(huggingface: str) -> str | None:
    """Return the GGUF name of the tensor that goes by `huggingface`, or None if it has none."""
    layer = re.fullmatch(r"model\.layers\.([0-9]+)\.(.+)\.(weight|bias)", huggingface)
    stem, _, kind = huggingface.rpartition(".")
    table, name = (_LAYER, layer[2]) if layer else (_OUTER, stem)
    found = next((short for short, long in table.items() if long == name), None)
    if found is None:
        return None
    return f"blk.{layer[1]}.{found}.{layer[3]}" if layer else f"{found}.{kind}"


def is_rope_interleaved(architecture: str, name: str) -> bool:
    """Tell whether the rows of tensor `name` (a Hugging Face name) are in the order of pairs."""
    return architecture in INTERLEAVED_ARCHITECTURES and name.endswith(
        (".q_proj.weight", ".q_proj.bias", ".k_proj.weight", ".k_proj.bias")
    )
