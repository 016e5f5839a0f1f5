"""Mixtral: Mistral with a mixture of experts for each MLP.

Source: "Mixtral of Experts", arXiv:2401.04088. Tensor names: transformers `MixtralForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import SILU, attention, head, require_activation
from inferno.models.experts import sparse_mlp
from inferno.models.rope import rope

USES = {"num_experts", "sliding_window"}
DEFAULTS = {"rope_theta": 1_000_000.0}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    require_activation(c, *SILU)
    rotation = rope(c)
    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = g.rms_norm(x, layer["input_layernorm"], c.rms_norm_eps)
        x = x + attention(g, h, layer["self_attn"], c, layer=i, rope=rotation)
        h = g.rms_norm(x, layer["post_attention_layernorm"], c.rms_norm_eps)
        moe = layer["block_sparse_moe"]
        x = x + sparse_mlp(g, h, moe["gate"], moe["experts"], c, names=("w1", "w3", "w2"))
    x = g.rms_norm(x, w["model.norm"], c.rms_norm_eps)
    return head(g, x, w, c)  # (tokens, vocab_size)
