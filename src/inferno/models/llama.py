"""Llama: pre-norm, rotary positions, grouped-query attention, SwiGLU.

Source: "LLaMA", arXiv:2302.13971. Tensor names: transformers `LlamaForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import SILU, NormHeads, attention, gated_mlp, head, require_activation
from inferno.models.rope import rope


def build(
    g: Graph,
    c: ModelConfig,
    w: Parameters,
    *,
    o_bias: bool | None = None,
    norm: NormHeads | None = None,
) -> Tensor:
    """Describe the forward pass.

    `o_bias`: the attention's output has a bias, as q, k and v do. `norm`: see `attention`.
    """
    require_activation(c, *SILU)
    rotation = rope(c)
    has_o_bias = c.attention_bias if o_bias is None else o_bias
    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = g.rms_norm(x, layer["input_layernorm"], c.rms_norm_eps)
        x = x + attention(
            g,
            h,
            layer["self_attn"],
            c,
            layer=i,
            rope=rotation if c.has_rope(i) else None,
            bias=c.attention_bias,
            o_bias=has_o_bias,
            norm=norm,
        )
        h = g.rms_norm(x, layer["post_attention_layernorm"], c.rms_norm_eps)
        x = x + gated_mlp(g, h, layer["mlp"], c, g.silu)
    x = g.rms_norm(x, w["model.norm"], c.rms_norm_eps)
    return head(g, x, w, c)  # (tokens, vocab_size)
