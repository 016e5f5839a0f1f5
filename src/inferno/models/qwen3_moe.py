"""Qwen3-MoE: Qwen3 with a mixture of experts for most MLPs.

Source: "Qwen3 Technical Report", arXiv:2505.09388. Tensor names: transformers
`Qwen3MoeForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import SILU, attention, gated_mlp, head, require_activation
from inferno.models.experts import sparse_mlp
from inferno.models.rope import rope

USES = {"mlp_only_layers", "norm_topk_prob", "num_experts", "sliding_window"}
DEFAULTS = {"use_sliding_window": False}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    require_activation(c, *SILU)
    rotation = rope(c)

    def norm(x: Tensor, weight: Parameters) -> Tensor:
        return g.rms_norm(x, weight, c.rms_norm_eps, head_dim=c.head_dim)

    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = g.rms_norm(x, layer["input_layernorm"], c.rms_norm_eps)
        bias = c.attention_bias
        x = x + attention(
            g, h, layer["self_attn"], c, layer=i, rope=rotation, bias=bias, o_bias=bias, norm=norm
        )
        h = g.rms_norm(x, layer["post_attention_layernorm"], c.rms_norm_eps)
        mlp = layer["mlp"]
        if i in c.mlp_only_layers:
            x = x + gated_mlp(g, h, mlp, c, g.silu)
        else:
            x = x + sparse_mlp(g, h, mlp["gate"], mlp["experts"], c, normalize=c.norm_topk_prob)
    x = g.rms_norm(x, w["model.norm"], c.rms_norm_eps)
    return head(g, x, w, c)  # (tokens, vocab_size)
