"""Mixtures of experts: a router chooses a few gated MLPs for each token (arXiv:2101.03961)."""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor


def sparse_mlp(
    g: Graph,
    h: Tensor,
    router: Parameters,
    experts: Parameters,
    c: ModelConfig,
    *,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    normalize: bool = True,
) -> Tensor:
    """Return the weighted sum of the chosen experts' down(silu(gate(h)) * up(h)).

    `names` are those of an expert's gate, up and down. `normalize`: see `Graph.route`.
    """
    logits = g.linear(h, router, c.num_experts)
    routing = g.route(logits, c.num_experts_per_tok, normalize=normalize)

    def linear(x: Tensor, name: str, width: int) -> Tensor:
        return g.expert_linear(x, routing, each(experts, name, c), width)

    gate, up, down = names
    hidden = g.silu(linear(h, gate, c.moe_intermediate_size)) * linear(
        h, up, c.moe_intermediate_size
    )
    return g.combine(linear(hidden, down, c.hidden_size), routing)


def each(experts: Parameters, name: str, c: ModelConfig) -> list[Parameters]:
    """Return the parameters called `name` of every expert."""
    return [experts[str(e)][name] for e in range(c.num_experts)]
