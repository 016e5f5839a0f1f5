"""OLMo 2: norms after each block and none before, and one on all queries and all keys.

Source: "2 OLMo 2 Furious", arXiv:2501.00656. Tensor names: transformers `Olmo2ForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import SILU, attention, gated_mlp, head, require_activation
from inferno.models.rope import rope


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    require_activation(c, *SILU)
    rotation = rope(c)

    def norm(x: Tensor, weight: Parameters) -> Tensor:
        return g.rms_norm(x, weight, c.rms_norm_eps)

    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = attention(
            g,
            x,
            layer["self_attn"],
            c,
            layer=i,
            rope=rotation,
            bias=c.attention_bias,
            o_bias=c.attention_bias,
            norm=norm,
        )
        x = x + norm(h, layer["post_attention_layernorm"])
        h = gated_mlp(g, x, layer["mlp"], c, g.silu)
        x = x + norm(h, layer["post_feedforward_layernorm"])
    return head(g, norm(x, w["model.norm"]), w, c)  # (tokens, vocab_size)
