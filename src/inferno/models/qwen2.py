"""Qwen2: Llama with biases on queries, keys and values, and none on the attention's output.

Source: "Qwen2 Technical Report", arXiv:2407.10671. Tensor names: transformers `Qwen2ForCausalLM`.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models import llama

USES = {"sliding_window"}
DEFAULTS = {"max_window_layers": 28, "use_sliding_window": False}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    return llama.build(g, c, w, o_bias=False)
