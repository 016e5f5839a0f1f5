"""Gemma 2: norms before and after each block, soft-capped scores and logits, GeGLU.

Every other layer sees a window only. Source: "Gemma 2", arXiv:2408.00118. Tensor names:
transformers `Gemma2ForCausalLM`.
"""

from __future__ import annotations

from functools import partial

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import (
    GELU_TANH,
    NormHeads,
    attention,
    gated_mlp,
    head,
    require_activation,
)
from inferno.models.rope import rope

USES = {
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "sliding_window",
}
DEFAULTS = {
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "hidden_act": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 2,
    "tie_word_embeddings": True,
}


def build(
    g: Graph, c: ModelConfig, w: Parameters, *, norm_heads: NormHeads | None = None
) -> Tensor:
    """Describe the forward pass; `norm_heads` normalizes queries and keys."""
    require_activation(c, *GELU_TANH)
    norm = partial(g.rms_norm, epsilon=c.rms_norm_eps, unit_offset=True)
    everywhere = rope(c)
    nearby = everywhere if c.rope_local_base_freq is None else rope(c, c.rope_local_base_freq)
    scale = (c.query_pre_attn_scalar or c.head_dim) ** -0.5
    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    x = x * c.hidden_size**0.5
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = attention(
            g,
            norm(x, layer["input_layernorm"]),
            layer["self_attn"],
            c,
            layer=i,
            rope=nearby if c.is_sliding(i) else everywhere,
            bias=c.attention_bias,
            o_bias=c.attention_bias,
            norm=norm_heads,
            scale=scale,
            softcap=c.attn_logit_softcapping or 0.0,
        )
        x = x + norm(h, layer["post_attention_layernorm"])
        h = norm(x, layer["pre_feedforward_layernorm"])
        h = gated_mlp(g, h, layer["mlp"], c, g.gelu)
        x = x + norm(h, layer["post_feedforward_layernorm"])
    logits = head(g, norm(x, w["model.norm"]), w, c)  # (tokens, vocab_size)
    limit = c.final_logit_softcapping
    return g.softcap(logits, limit) if limit else logits
