"""Phi-3 and Phi-4: Llama with q, k, v in one matrix and gate, up in another, rotated in part.

Source: "Phi-3 Technical Report", arXiv:2404.14219. Tensor names: transformers `Phi3ForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import SILU, attend, head, require_activation
from inferno.models.rope import rope

USES = {"partial_rotary_factor", "sliding_window"}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    require_activation(c, *SILU)
    rotation = rope(c)
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = g.rms_norm(x, layer["input_layernorm"], c.rms_norm_eps)
        qkv = g.linear(h, layer["self_attn"]["qkv_proj"], q + 2 * kv)
        queries, keys, values = g.split(qkv, q, kv, kv)
        h = attend(g, queries, keys, values, c, layer=i, rope=rotation)
        x = x + g.linear(h, layer["self_attn"]["o_proj"], c.hidden_size)
        h = g.rms_norm(x, layer["post_attention_layernorm"], c.rms_norm_eps)
        both = g.linear(h, layer["mlp"]["gate_up_proj"], 2 * c.intermediate_size)
        gate, up = g.split(both, c.intermediate_size, c.intermediate_size)
        x = x + g.linear(g.silu(gate) * up, layer["mlp"]["down_proj"], c.hidden_size)
    x = g.rms_norm(x, w["model.norm"], c.rms_norm_eps)
    return head(g, x, w, c)  # (tokens, vocab_size)
