"""Blocks that several families share; what only one family does stays in its own file."""

from __future__ import annotations

from collections.abc import Callable

from inferno.config import ModelConfig
from inferno.errors import UnsupportedModel
from inferno.graph import Graph, Parameters, Rope, Tensor

Activation = Callable[[Tensor], Tensor]
NormHeads = Callable[[Tensor, Parameters], Tensor]


def attention(
    g: Graph,
    h: Tensor,
    w: Parameters,
    c: ModelConfig,
    *,
    layer: int,
    rope: Rope | None,
    bias: bool = False,
    o_bias: bool = False,
    norm: NormHeads | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: Parameters | None = None,
) -> Tensor:
    """Return grouped-query attention of h (tokens, hidden_size), projected back to hidden_size.

    `norm(x, w)` normalizes queries and keys, by the weights `q_norm` and `k_norm`. A layer whose
    `layer_types` say so sees a window of `sliding_window` tokens.
    """
    d = c.head_dim
    width, kv_width = c.num_attention_heads * d, c.num_key_value_heads * d
    q = g.linear(h, w["q_proj"], width, bias=bias, rope_head_dim=d)
    k = g.linear(h, w["k_proj"], kv_width, bias=bias, rope_head_dim=d)
    v = g.linear(h, w["v_proj"], kv_width, bias=bias)
    if norm is not None:
        q, k = norm(q, w["q_norm"]), norm(k, w["k_norm"])
    o = attend(g, q, k, v, c, layer=layer, rope=rope, scale=scale, softcap=softcap, sinks=sinks)
    return g.linear(o, w["o_proj"], c.hidden_size, bias=o_bias)


def attend(
    g: Graph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    c: ModelConfig,
    *,
    layer: int,
    rope: Rope | None,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: Parameters | None = None,
) -> Tensor:
    """Return `g.attention` with the config's numbers; scores are scaled by 1 / sqrt(head_dim)."""
    return g.attention(
        q,
        k,
        v,
        layer=layer,
        heads=c.num_attention_heads,
        kv_heads=c.num_key_value_heads,
        head_dim=c.head_dim,
        rope=rope,
        scale=c.head_dim**-0.5 if scale is None else scale,
        window=c.window(layer),
        softcap=softcap,
        sinks=sinks,
    )


def gated_mlp(g: Graph, h: Tensor, w: Parameters, c: ModelConfig, activation: Activation) -> Tensor:
    """Return down(activation(gate(h)) * up(h)) (Shazeer, arXiv:2002.05202)."""
    gate = g.linear(h, w["gate_proj"], c.intermediate_size, bias=c.mlp_bias)
    up = g.linear(h, w["up_proj"], c.intermediate_size, bias=c.mlp_bias)
    return g.linear(activation(gate) * up, w["down_proj"], c.hidden_size, bias=c.mlp_bias)


def head(g: Graph, x: Tensor, w: Parameters, c: ModelConfig) -> Tensor:
    """Return the logits (tokens, vocab_size), by the embedding if the two are tied."""
    table = "model.embed_tokens" if c.tie_word_embeddings else "lm_head"
    return g.linear(x, w[table], c.vocab_size)


def require_activation(c: ModelConfig, *names: str) -> None:
    """Refuse an activation that is none of `names`, those that the file at hand has.

    Raises:
        UnsupportedModel: `hidden_act` is another.
    """
    if c.hidden_act not in names:
        raise UnsupportedModel(
            f"Activation `{c.hidden_act}` of `{c.model_type}` is not supported "
            f"(supported: {names[0]})"
        )


SILU = ("silu", "swish")
GELU_TANH = ("gelu_pytorch_tanh", "gelu_new")
