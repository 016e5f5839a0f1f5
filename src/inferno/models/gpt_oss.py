"""gpt-oss: a mixture of experts with biases, a clamped SwiGLU, and an attention sink a head.

Every other layer sees a window only. Source: "gpt-oss-120b & gpt-oss-20b Model Card",
arXiv:2508.10925. Tensor names: transformers `GptOssForCausalLM`, an expert at a time.
"""

from __future__ import annotations

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor
from inferno.models.blocks import attention, head
from inferno.models.experts import each
from inferno.models.rope import rope

USES = {"num_experts", "sliding_window", "swiglu_limit"}
DEFAULTS = {
    "attention_bias": True,
    "rope_scaling": {"truncate": False},  # which GGUF has no key for
    "rope_theta": 150_000.0,
    "sliding_window_pattern": 2,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
}


def build(g: Graph, c: ModelConfig, w: Parameters) -> Tensor:
    """Describe the forward pass."""
    rotation = rope(c)
    x = g.embed(w["model.embed_tokens"], c.vocab_size, c.hidden_size)  # (tokens, hidden_size)
    for i, layer in enumerate(w.layers("model.layers", c.num_hidden_layers)):
        x = x + attention(
            g,
            g.rms_norm(x, layer["input_layernorm"], c.rms_norm_eps),
            layer["self_attn"],
            c,
            layer=i,
            rope=rotation,
            bias=c.attention_bias,
            o_bias=c.attention_bias,
            sinks=layer["self_attn"]["sinks"],
        )
        h = g.rms_norm(x, layer["post_attention_layernorm"], c.rms_norm_eps)
        x = x + _experts(g, h, layer["mlp"], c)
    x = g.rms_norm(x, w["model.norm"], c.rms_norm_eps)
    return head(g, x, w, c)  # (tokens, vocab_size)


def _experts(g: Graph, h: Tensor, w: Parameters, c: ModelConfig) -> Tensor:
    logits = g.linear(h, w["router"], c.num_experts, bias=True)
    routing = g.route(logits, c.num_experts_per_tok, normalize=True)

    def linear(x: Tensor, name: str, width: int) -> Tensor:
        return g.expert_linear(x, routing, each(w["experts"], name, c), width, bias=True)

    gate = linear(h, "gate_proj", c.moe_intermediate_size)
    up = linear(h, "up_proj", c.moe_intermediate_size)
    hidden = g.clamped_swiglu(gate, up, c.swiglu_limit)
    return g.combine(linear(hidden, "down_proj", c.hidden_size), routing)
