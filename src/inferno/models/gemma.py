"""Gemma: Llama with GeGLU, embeddings scaled by the root of their width, and norms stored as w - 1.

Source: "Gemma", arXiv:2403.08295. Tensor names: transformers `GemmaForCausalLM`.
"""

from __future__ import annotations

from functools import partial

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import GELU_TANH, attention, gated_mlp, head, require_activation
from inferno.models.rope import rope

DEFAULTS = {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    require_activation(c, *GELU_TANH, "gelu")  # "gelu" in early files, which mean the same
    norm = partial(g.rms_norm, epsilon=c.rms_norm_eps, unit_offset=True)
    rotation = rope(c)
    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    x = x * c.hidden_size**0.5
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        h = norm(x, layer["input_layernorm"])
        x = x + attention(g, h, layer["self_attn"], c, layer=i, rope=rotation)
        h = norm(x, layer["post_attention_layernorm"])
        x = x + gated_mlp(g, h, layer["mlp"], c, g.gelu)
    return head(g, norm(x, w["model.norm"]), w, c)  # (tokens, vocab_size)
