"""SmolLM3: Llama, where every fourth layer knows no positions.

Source: "SmolLM3" (huggingface.co/blog/smollm3); layers without RoPE: arXiv:2501.18795. Tensor
names: transformers `SmolLM3ForCausalLM`.
"""

from __future__ import annotations

from inferno.models.llama import build

__all__ = ["build"]

USES = {"no_rope_layers", "sliding_window"}
DEFAULTS = {
    "no_rope_layer_interval": 4,
    "rope_theta": 2_000_000.0,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
