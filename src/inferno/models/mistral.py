"""Mistral: Llama, whose layers see a window of the latest tokens.

Source: "Mistral 7B", arXiv:2310.06825. Tensor names: transformers `MistralForCausalLM`.
"""

from __future__ import annotations

from inferno.models.llama import build

__all__ = ["build"]

USES = {"sliding_window"}
