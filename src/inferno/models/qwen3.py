"""Qwen3: Llama with a norm on each query and key head.

Source: "Qwen3 Technical Report", arXiv:2505.09388. Tensor names: transformers `Qwen3ForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models import llama

USES = {"sliding_window"}
DEFAULTS = {"max_window_layers": 28, "use_sliding_window": False}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""

    def norm(x: Tensor, weight: Parameters) -> Tensor:
        return g.rms_norm(x, weight, c.rms_norm_eps, head_dim=c.head_dim)

    return llama.build(g, c, w, norm=norm)
