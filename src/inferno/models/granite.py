"""Granite: Llama with constant factors on embeddings, scores, residuals and logits.

Source: "Granite 3.0 Language Models", IBM 2024; the factors are those of maximal update
parametrization (arXiv:2203.03466). Tensor names: transformers `GraniteForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import SILU, attention, gated_mlp, head, require_activation
from inferno.models.rope import rope

USES = {
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "residual_multiplier",
}
DEFAULTS = {"attention_multiplier": 1.0}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    require_activation(c, *SILU)
    rotation = rope(c)
    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    x = x * c.embedding_multiplier
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = attention(
            g,
            g.rms_norm(x, layer["input_layernorm"], c.rms_norm_eps),
            layer["self_attn"],
            c,
            layer=i,
            rope=rotation,
            bias=c.attention_bias,
            o_bias=c.attention_bias,
            scale=c.attention_multiplier,
        )
        x = x + h * c.residual_multiplier
        h = g.rms_norm(x, layer["post_attention_layernorm"], c.rms_norm_eps)
        x = x + gated_mlp(g, h, layer["mlp"], c, g.silu) * c.residual_multiplier
    x = g.rms_norm(x, w["model.norm"], c.rms_norm_eps)
    return head(g, x, w, c) * (1 / c.logits_scaling)  # (tokens, vocab_size)
