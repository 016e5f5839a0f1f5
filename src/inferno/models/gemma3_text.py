"""Gemma 3, text alone: Gemma 2 with a norm on query and key heads in place of soft-capped scores.

One layer of six sees everything, with a RoPE base of its own. Source: "Gemma 3 Technical Report",
arXiv:2503.19786. Tensor names: transformers `Gemma3ForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models import gemma2

USES = {
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "rope_local_base_freq",
    "sliding_window",
}
DEFAULTS = {
    "hidden_act": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 10_000.0,
    "rope_theta": 1_000_000.0,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""

    def norm(x: Tensor, weight: Parameters) -> Tensor:
        return g.rms_norm(x, weight, c.rms_norm_eps, head_dim=c.head_dim, unit_offset=True)

    return gemma2.build(g, c, w, norm_heads=norm)
