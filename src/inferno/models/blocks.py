"""Blocks that several families share; what only one family does stays in its own file."""

from __future__ import annotations

from collections.abc import Callable

from inferno.config import ModelConfig
from inferno.errors import UnsupportedModel
from inferno.graph import Floats, Graph, Parameters, Tensor


def attention(
    g: Graph,
    h: Tensor,
    w: Parameters,
    c: ModelConfig,
    *,
    layer: int,
    rope: Floats | None,
    bias: bool = False,
    o_bias: bool = False,
) -> Tensor:
    """Return grouped-query attention of h (tokens, hidden_size), projected back to hidden_size."""
    d = c.head_dim
    width, kv_width = c.num_attention_heads * d, c.num_key_value_heads * d
    q = g.linear(h, w["q_proj"], width, bias=bias, rope_head_dim=d)
    k = g.linear(h, w["k_proj"], kv_width, bias=bias, rope_head_dim=d)
    v = g.linear(h, w["v_proj"], kv_width, bias=bias)
    o = g.attention(
        q,
        k,
        v,
        layer=layer,
        heads=c.num_attention_heads,
        kv_heads=c.num_key_value_heads,
        head_dim=d,
        rope=rope,
        scale=d**-0.5,
    )
    return g.linear(o, w["o_proj"], c.hidden_size, bias=o_bias)


def gated_mlp(
    g: Graph, h: Tensor, w: Parameters, c: ModelConfig, activation: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return down(activation(gate(h)) * up(h)) (Shazeer, arXiv:2002.05202)."""
    gate = g.linear(h, w["gate_proj"], c.intermediate_size, bias=c.mlp_bias)
    up = g.linear(h, w["up_proj"], c.intermediate_size, bias=c.mlp_bias)
    return g.linear(activation(gate) * up, w["down_proj"], c.hidden_size, bias=c.mlp_bias)


def head(g: Graph, x: Tensor, w: Parameters, c: ModelConfig) -> Tensor:
    """Return the logits (tokens, vocab_size), by the embedding if the two are tied."""
    table = "model.embed_tokens" if c.tie_word_embeddings else "lm_head"
    return g.linear(x, w[table], c.vocab_size)


def require_silu(c: ModelConfig) -> None:
    """Refuse an activation that the file at hand does not have.

    Raises:
        UnsupportedModel: `hidden_act` is another.
    """
    if c.hidden_act not in ("silu", "swish"):
        raise UnsupportedModel(
            f"Activation `{c.hidden_act}` of `{c.model_type}` is not supported (supported: silu)"
        )
