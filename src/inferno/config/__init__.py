"""What a model is made of: Hugging Face's words for it, read from config.json or from GGUF.

Knows nothing of files or tensors' bytes, and leaves to `models/` what an architecture does with
its numbers. Both sources are hostile: each number is checked before anyone multiplies with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inferno.config.stop_tokens import end_of_turn_ids
from inferno.config.values import MAX_CONTEXT, MAX_EXPERTS
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.excerpt import shown

__all__ = ["MAX_EXPERTS", "ModelConfig", "end_of_turn_ids"]

SLIDING, FULL = "sliding_attention", "full_attention"  # what `layer_types` may say

# Attention kernels handle a head in vectors of eight floats, and so many heads that share their
# keys and values at once (kMaxQueryRows in native/runtime/executor.cpp).
HEAD_DIM_MULTIPLE = 8
MAX_SHARING_HEADS = 512


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The numbers and flags of a model, under their keys in config.json.

    `architecture` is the first of `architectures`, or GGUF's `general.architecture`.
    `rope_scaling` is None for plain RoPE, else has a `rope_type`; the model file decides if it
    supports that. `attention_bias` says that q, k and v have biases. `generation` holds sampling
    defaults under the names of `SamplingParams`. `raw` is config.json, or the GGUF metadata
    without its long arrays. `context` is what a length-dependent `rope_scaling` goes by: the
    context asked for, or 0.

    From `sliding_window` to `swiglu_limit` are the features: a model's file names in `USES` those
    it goes by, and the others must be absent.
    """

    model_type: str
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None = None
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()  # of each layer, if there is a window
    partial_rotary_factor: float = 1.0
    rope_local_base_freq: float | None = None  # theta of the layers with a window
    no_rope_layers: tuple[int, ...] = ()  # 1 for each layer that has RoPE; () if all have
    query_pre_attn_scalar: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    embedding_multiplier: float = 1.0
    attention_multiplier: float | None = None
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = False
    mlp_only_layers: tuple[int, ...] = ()
    swiglu_limit: float = 0.0
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    context: int = 0

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise InvalidCheckpoint(
                f"`num_key_value_heads`: expected a divisor of num_attention_heads = "
                f"{self.num_attention_heads}, found {self.num_key_value_heads}"
            )
        sharing = self.num_attention_heads // self.num_key_value_heads
        if sharing > MAX_SHARING_HEADS:
            raise UnsupportedModel(
                f"`num_attention_heads`: expected at most {MAX_SHARING_HEADS} to share a "
                f"key/value head, found {sharing:,}"
            )
        if self.head_dim % HEAD_DIM_MULTIPLE:
            raise UnsupportedModel(
                f"`head_dim`: expected a multiple of {HEAD_DIM_MULTIPLE}, found {self.head_dim}"
            )
        if self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.head_dim:
            raise InvalidCheckpoint(
                f"`partial_rotary_factor`: expected an even part of head_dim = {self.head_dim}, "
                f"found {self.partial_rotary_factor:g}"
            )
        if self.num_experts_per_tok > self.num_experts:
            raise InvalidCheckpoint(
                f"`num_experts_per_tok`: expected at most num_experts = {self.num_experts}, "
                f"found {self.num_experts_per_tok}"
            )
        ids = [*self.eos_token_ids, *([] if self.bos_token_id is None else [self.bos_token_id])]
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise InvalidCheckpoint(
                    f"Begin and end tokens: expected ids from 0 to {self.vocab_size - 1:,} "
                    f"(vocab_size - 1), found {shown(token)}"
                )
        # It is printed when the model is loaded, and comes out of a file.
        name = "".join(c if c.isprintable() else " " for c in self.name)[:80]
        object.__setattr__(self, "name", name)

    @property
    def rotary_dim(self) -> int:
        """How many columns of a head are rotated."""
        return int(round(self.head_dim * self.partial_rotary_factor, 6))

    @property
    def max_context(self) -> int:
        """The longest context that can be asked for: scaled RoPE reaches beyond the trained one."""
        scaling = self.rope_scaling or {}
        factor = scaling.get("factor")
        length = scaling.get("original_max_position_embeddings", self.max_position_embeddings)
        if scaling.get("rope_type") not in ("dynamic", "yarn") or not factor:
            return self.max_position_embeddings
        return min(max(self.max_position_embeddings, int(factor * length)), MAX_CONTEXT)

    def is_sliding(self, layer: int) -> bool:
        """Tell whether a layer sees the latest `sliding_window` tokens only."""
        return bool(self.layer_types) and self.layer_types[layer] == SLIDING

    def window(self, layer: int) -> int:
        """Return how many tokens a layer sees; 0 for all."""
        return (self.sliding_window or 0) if self.is_sliding(layer) else 0

    def has_rope(self, layer: int) -> bool:
        """Tell whether a layer rotates its queries and keys."""
        return not self.no_rope_layers or self.no_rope_layers[layer] == 1

    @classmethod
    def from_huggingface(
        cls,
        config: Mapping[str, Any],
        generation_config: Mapping[str, Any] | None = None,
        tokenizer_config: Mapping[str, Any] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> ModelConfig:
        """Read config.json and the files beside it.

        `shapes` are those of the tensors, by name; they settle what config.json leaves open.

        Raises:
            InvalidCheckpoint: a value is missing, of the wrong kind, or contradicts another.
            UnsupportedModel: the architecture or one of its features cannot be run.
        """
        from inferno.config.config_json import read_config_json  # late: it makes a ModelConfig

        return read_config_json(
            config, generation_config or {}, tokenizer_config or {}, shapes or {}
        )

    @classmethod
    def from_gguf(
        cls,
        metadata: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> ModelConfig:
        """Read GGUF metadata; `shapes` are those of the tensors, by Hugging Face name.

        Without `shapes`, output and input embeddings are taken to be tied, and without biases.

        Raises:
            InvalidCheckpoint: a value is missing, of the wrong kind, or contradicts another.
            UnsupportedModel: the architecture or one of its features cannot be run.
        """
        from inferno.config.gguf_metadata import read_gguf_metadata  # late, as above

        return read_gguf_metadata(metadata, shapes or {})
