"""The GGUF names of tensors, and the Hugging Face names they go by here.

Source: `convert_hf_to_gguf.py` and gguf's tensor mapping, for the Llama and Qwen families. Gemma
uses `post_attention_norm` otherwise, so a family with its own table needs its own entry here.
"""

from __future__ import annotations

import re

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
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_TENSOR = re.compile(r"(?:blk\.(0|[1-9][0-9]{0,4})\.)?([a-z_]+)\.(weight|bias)")

# The architectures whose converter reorders the rows of q and k, so that rotary pairs are
# neighbours: the layout of Meta's own Llama checkpoints, which GGUF kept.
INTERLEAVED_ARCHITECTURES = frozenset({"llama"})


def huggingface_name(gguf_name: str) -> str:
    """Return the Hugging Face name of a tensor, or `gguf_name` itself if it has none."""
    match = _TENSOR.fullmatch(gguf_name)
    if match is None:
        return gguf_name
    layer, stem, kind = match.groups()
    name = _OUTER.get(stem) if layer is None else _LAYER.get(stem)
    if name is None:
        return gguf_name
    return f"{name}.{kind}" if layer is None else f"model.layers.{layer}.{name}.{kind}"


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
