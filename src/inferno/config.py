"""What a model is made of: Hugging Face's words for it, read from config.json or from GGUF.

Knows nothing of files or tensors' bytes, and leaves to `models/` what an architecture does with
its numbers. Both sources are hostile: each number is checked before anyone multiplies with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from inferno.errors import InvalidCheckpoint, InvalidOption, UnsupportedModel
from inferno.excerpt import quoted, shown
from inferno.options import SamplingParams

# Far above any real model, far below what overflows when a few of them are multiplied.
MAX_SIZE = 1 << 24
MAX_LAYERS = 1 << 12
MAX_CONTEXT = (1 << 31) - 1
MAX_EXPERTS = 1024  # kMaxExperts in native/kernels/table.h

# Names of tokens that end a turn. Many files name one of several as the end of text, often not the
# one that their chat template writes; llama.cpp goes by the same names.
END_OF_TURN_TOKENS = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|return|>",
        "<|call|>",
    }
)

# Attention kernels handle a head in vectors of eight floats, and so many heads that share their
# keys and values at once (kMaxQueryRows in native/runtime/executor.cpp).
HEAD_DIM_MULTIPLE = 8
MAX_SHARING_HEADS = 512

_CONTROL, _USER_DEFINED = 3, 4  # ggml's token types; converters take one for the other
_SMALL = 64  # longest array that stays in `raw`

# GGUF's names of sampling defaults, and ours.
_GGUF_SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
    "general.sampling.penalty_last_n": "repeat_last_n",
    "general.sampling.xtc_probability": "xtc_probability",
    "general.sampling.xtc_threshold": "xtc_threshold",
}


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
        return bool(self.layer_types) and self.layer_types[layer] == _SLIDING

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
        generation_config, shapes = generation_config or {}, shapes or {}
        c = _Values(config, "config.json")
        model_type = c.text("model_type")
        architectures = config.get("architectures") or [model_type]
        architecture = architectures[0] if isinstance(architectures, list) else architectures
        if not isinstance(architecture, str):
            raise c.error("architectures", "a list of names", architectures)
        _check_supported(model_type, architecture)
        if config.get("architectures") and not architecture.endswith("ForCausalLM"):
            raise UnsupportedModel(
                f"Architecture {quoted(architecture)} is not supported: it does not generate text",
                hint="pick a model whose architecture ends in ForCausalLM",
            )
        _refuse_features(config)
        c = _Values(config, "config.json", defaults=_defaults_of(model_type))

        hidden_size = c.integer("hidden_size", MAX_SIZE)
        num_attention_heads = c.integer("num_attention_heads", MAX_SIZE)
        if config.get("head_dim") is None and hidden_size % num_attention_heads:
            raise c.error(
                "hidden_size",
                f"a multiple of num_attention_heads = {num_attention_heads}",
                hidden_size,
            )
        rope_theta, rope_scaling, rope_local_base_freq = _rope(c)
        num_hidden_layers = c.integer("num_hidden_layers", MAX_LAYERS)
        intermediate_size = c.integer("intermediate_size", MAX_SIZE)
        features = _features(c, num_hidden_layers, intermediate_size)
        features["partial_rotary_factor"] = _partial_rotary_factor(c)
        features["rope_local_base_freq"] = rope_local_base_freq
        max_position_embeddings = c.integer("max_position_embeddings", MAX_CONTEXT, 2048)
        _refuse_unused(model_type, features, c, max_position_embeddings)
        activation = "hidden_activation" if config.get("hidden_activation") else "hidden_act"
        return cls(
            model_type=model_type,
            architecture=architecture,
            vocab_size=c.integer("vocab_size", MAX_SIZE),
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=num_attention_heads,
            num_key_value_heads=c.integer("num_key_value_heads", MAX_SIZE, num_attention_heads),
            head_dim=c.integer("head_dim", MAX_SIZE, hidden_size // num_attention_heads),
            max_position_embeddings=max_position_embeddings,
            rms_norm_eps=c.number("rms_norm_eps", 1.0, 1e-6),
            rope_theta=rope_theta,
            rope_scaling=rope_scaling,
            hidden_act=c.text(activation, "silu"),
            tie_word_embeddings=c.boolean("tie_word_embeddings", False),
            attention_bias=c.boolean("attention_bias", _Q_BIAS in shapes),
            mlp_bias=c.boolean("mlp_bias", _GATE_BIAS in shapes),
            bos_token_id=c.token("bos_token_id"),
            eos_token_ids=_unique(
                c.tokens("eos_token_id"),
                _Values(generation_config, "generation_config.json").tokens("eos_token_id"),
                _added_end_tokens(tokenizer_config or {}),
            ),
            generation=_generation(generation_config),
            raw=config,
            **features,
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
        shapes = shapes or {}
        g = _Values(metadata, "the GGUF metadata")
        architecture = g.text("general.architecture")
        model_type = _gguf_model_type(architecture, metadata)
        _check_supported(model_type, architecture)
        defaults = _defaults_of(model_type)
        g = _Values(metadata, "the GGUF metadata", f"{architecture}.", defaults, _GGUF_KEYS)

        hidden_size = g.integer("embedding_length", MAX_SIZE)
        num_attention_heads = g.integer("attention.head_count", MAX_SIZE)
        if metadata.get(f"{architecture}.attention.key_length") is None and (
            hidden_size % num_attention_heads
        ):
            raise g.error(
                "embedding_length", f"a multiple of head_count = {num_attention_heads}", hidden_size
            )
        head_dim = g.integer("attention.key_length", MAX_SIZE, hidden_size // num_attention_heads)
        found = g.integer("attention.value_length", MAX_SIZE, head_dim)
        if found != head_dim:
            raise UnsupportedModel(
                f"`{architecture}.attention.value_length`: expected head_dim = {head_dim}, "
                f"found {found}",
                hint="heads whose keys and values differ in size are not supported",
            )
        num_hidden_layers = g.integer("block_count", MAX_LAYERS)
        intermediate_size = g.integer("feed_forward_length", MAX_SIZE)
        features = _features(g, num_hidden_layers, intermediate_size)
        features |= _gguf_features(g, architecture, head_dim, hidden_size // num_attention_heads)
        max_position_embeddings = g.integer("context_length", MAX_CONTEXT)
        _refuse_unused(model_type, features, g, max_position_embeddings)
        tokenizer = _Values(metadata, "the GGUF metadata", "tokenizer.ggml.")
        tokens = tokenizer.items("tokens", str)
        embedding = shapes.get("model.embed_tokens.weight", (0,))
        vocab_size = g.integer("vocab_size", MAX_SIZE, embedding[0] or len(tokens) or None)
        if len(tokens) > vocab_size:
            raise tokenizer.error("tokens", f"at most vocab_size = {vocab_size:,} of them", tokens)
        return cls(
            model_type=model_type,
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=num_attention_heads,
            num_key_value_heads=g.integer("attention.head_count_kv", MAX_SIZE, num_attention_heads),
            head_dim=head_dim,
            max_position_embeddings=max_position_embeddings,
            rms_norm_eps=g.number("attention.layer_norm_rms_epsilon", 1.0),
            rope_theta=g.number("rope_theta", 1e12, 10_000.0),
            rope_scaling=_gguf_rope_scaling(g, defaults),
            hidden_act=str(defaults.get("hidden_act", "silu")),
            tie_word_embeddings="lm_head.weight" not in shapes,
            attention_bias=_Q_BIAS in shapes,
            mlp_bias=_GATE_BIAS in shapes,
            bos_token_id=tokenizer.token("bos_token_id"),
            eos_token_ids=_unique(
                tokenizer.tokens("eos_token_id"),
                tokenizer.tokens("eot_token_id"),
                tokenizer.tokens("eom_token_id"),
                _control_end_tokens(tokens, tokenizer.items("token_type", int)),
            ),
            generation=_checked_sampling(
                {ours: metadata[key] for key, ours in _GGUF_SAMPLING.items() if key in metadata},
                "the GGUF metadata",
            ),
            name=_Values(metadata, "the GGUF metadata").text("general.name", ""),
            raw={
                key: value
                for key, value in metadata.items()
                if not isinstance(value, list) or len(value) <= _SMALL
            },
            **features,
        )


# What a model's file has to name in `USES`. What comes with another of them is not named apart.
_FEATURES = frozenset(
    {
        "sliding_window",
        "partial_rotary_factor",
        "rope_local_base_freq",
        "no_rope_layers",
        "query_pre_attn_scalar",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "embedding_multiplier",
        "attention_multiplier",
        "residual_multiplier",
        "logits_scaling",
        "num_experts",
        "mlp_only_layers",
        "swiglu_limit",
    }
)

_Q_BIAS = "model.layers.0.self_attn.q_proj.bias"
_GATE_BIAS = "model.layers.0.mlp.gate_proj.bias"


class _Values:
    """Typed reading of a mapping: `source` names it in errors, `prefix` goes before each key.

    A key that is absent or null has its default; without a default, that is an error. One that is
    absent has first that of `defaults`. `names` says how the source calls some of the keys.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        source: str,
        prefix: str = "",
        defaults: Mapping[str, Any] = MappingProxyType({}),
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.values = values
        self.source = source
        self.prefix = prefix
        self.defaults = defaults
        self.names = names

    def name(self, key: str) -> str:
        """Return how the source calls `key`."""
        return self.prefix + self.names.get(key, key)

    def has(self, key: str) -> bool:
        """Tell whether the source has a value for `key`."""
        return self.values.get(self.name(key)) is not None

    def integer(self, key: str, high: int, default: int | None = None, *, low: int = 1) -> int:
        value = self.get(key, default)
        if isinstance(value, list) and value and all(type(v) is int for v in value):
            raise UnsupportedModel(
                f"`{self.name(key)}` in {self.source}: values that vary by layer are not supported"
            )
        if type(value) is not int or not low <= value <= high:
            raise self.error(key, f"an integer from {low} to {high:,}", value)
        return value

    def number(self, key: str, high: float, default: float | None = None) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float) or not 0 < value <= high or not math.isfinite(value):
            raise self.error(key, f"a positive number up to {high:g}", value)
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false", value)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "text", value)
        return value

    def items(self, key: str, kind: type) -> list[Any]:
        value = self.get(key, [])
        if not isinstance(value, list) or (value and type(value[0]) is not kind):
            raise self.error(key, f"an array of {kind.__name__}", value)
        return value

    def token(self, key: str) -> int | None:
        tokens = self.tokens(key)
        if len(tokens) > 1:
            raise self.error(key, "one token id", list(tokens))
        return tokens[0] if tokens else None

    def tokens(self, key: str) -> tuple[int, ...]:
        value = self.get(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(type(token) is int for token in ids):
            raise self.error(key, "a token id or a list of them", value)
        return tuple(ids)

    def get(self, key: str, default: Any) -> Any:
        name = self.name(key)
        value = self.values[name] if name in self.values else self.defaults.get(key)
        if value is None:
            value = default
        if value is None:
            raise InvalidCheckpoint(f"`{name}` is missing from {self.source}")
        return value

    def optional_number(self, key: str, high: float = 1e6) -> float | None:
        return self.number(key, high) if self.is_set(key) else None

    def is_set(self, key: str) -> bool:
        """Tell whether `key` has a value, be it from `defaults`."""
        name = self.name(key)
        value = self.values[name] if name in self.values else self.defaults.get(key)
        return value is not None

    def error(self, key: str, expected: str, found: Any) -> InvalidCheckpoint:
        number = f"{len(found):,} of them" if isinstance(found, list) else shown(found)
        return InvalidCheckpoint(
            f"`{self.name(key)}` in {self.source}: expected {expected}, found {number}",
            hint="the file is damaged, or was edited by hand",
        )


def _supported() -> Sequence[str]:
    from inferno.models import supported  # late: it looks through the files of its folder

    return supported()


def _check_supported(model_type: str, architecture: str) -> None:
    known = _supported()
    if model_type not in known:
        raise UnsupportedModel(
            f"Architecture {quoted(architecture)} is not supported (supported: {', '.join(known)})",
            hint="a model of another family, or another conversion of this one, may run",
        )


def _refuse_features(config: Mapping[str, Any]) -> None:
    """Refuse what config.json can switch on and would change every result in silence."""
    found = config.get("quantization_config")
    method = found.get("quant_method") if isinstance(found, dict) else found
    # gpt-oss's experts are MXFP4, which is a format of tensors here and no feature.
    if found and (method, config.get("model_type")) != ("mxfp4", "gpt_oss"):
        raise UnsupportedModel(
            f"`quantization_config`: checkpoints quantized with {shown(method)} are not supported",
            hint="pick the unquantized model, or a Q8_0 or Q4_0 GGUF of it",
        )
    if config.get("use_bidirectional_attention"):
        raise UnsupportedModel(
            "`use_bidirectional_attention`: attention to later tokens is not supported"
        )
    if config.get("swiglu_alpha") not in (None, 1.702):
        raise UnsupportedModel(
            f"`swiglu_alpha`: expected 1.702, found {shown(config['swiglu_alpha'])}"
        )


_SLIDING, _FULL = "sliding_attention", "full_attention"


def _features(c: _Values, layers: int, intermediate_size: int) -> dict[str, Any]:
    """Read what only some families have, under the fields of `ModelConfig`."""
    sliding_window = c.integer("sliding_window", MAX_CONTEXT, 0, low=0) or None
    # Qwen names a window that `use_sliding_window` turns off, and transformers goes by that.
    if not c.boolean("use_sliding_window", True):
        sliding_window = None
    layer_types = _layer_types(c, layers, sliding_window)
    experts = "num_local_experts" if c.has("num_local_experts") else "num_experts"
    num_experts = c.integer(experts, MAX_EXPERTS, 0, low=0)
    features: dict[str, Any] = {
        "sliding_window": sliding_window if _SLIDING in layer_types else None,
        "layer_types": layer_types if _SLIDING in layer_types else (),
        "no_rope_layers": _no_rope_layers(c, layers),
        "query_pre_attn_scalar": c.optional_number("query_pre_attn_scalar"),
        "attn_logit_softcapping": c.optional_number("attn_logit_softcapping"),
        "final_logit_softcapping": c.optional_number("final_logit_softcapping"),
        "embedding_multiplier": c.number("embedding_multiplier", 1e6, 1.0),
        "attention_multiplier": c.optional_number("attention_multiplier"),
        "residual_multiplier": c.number("residual_multiplier", 1e6, 1.0),
        "logits_scaling": c.number("logits_scaling", 1e6, 1.0),
        "num_experts": num_experts,
    }
    if num_experts:
        sparse_step = c.integer("decoder_sparse_step", MAX_LAYERS, 1)
        dense = c.items("mlp_only_layers", int)
        features |= {
            "num_experts_per_tok": c.integer("num_experts_per_tok", MAX_EXPERTS),
            "moe_intermediate_size": c.integer(
                "moe_intermediate_size", MAX_SIZE, intermediate_size
            ),
            "norm_topk_prob": c.boolean("norm_topk_prob", False),
            "mlp_only_layers": tuple(
                i for i in range(layers) if i in dense or (i + 1) % sparse_step
            ),
            "swiglu_limit": c.number("swiglu_limit", 1e6) if c.is_set("swiglu_limit") else 0.0,
        }
    return features


def _layer_types(c: _Values, layers: int, sliding_window: int | None) -> tuple[str, ...]:
    types = c.items("layer_types", str)
    if types:
        strange = [kind for kind in types if kind not in (_SLIDING, _FULL)]
        if strange:
            raise UnsupportedModel(
                f"`layer_types`: layers of {shown(strange[0])} are not supported "
                f"(supported: {_FULL}, {_SLIDING})"
            )
        if len(types) != layers:
            raise c.error("layer_types", f"one of each of {layers} layers", types)
        if sliding_window is None and _SLIDING in types and c.boolean("use_sliding_window", True):
            raise c.error("sliding_window", "the width of the window of `layer_types`", None)
        return tuple(types)
    if sliding_window is None:
        return (_FULL,) * layers
    if "max_window_layers" in c.defaults:
        first = c.integer("max_window_layers", MAX_CONTEXT, low=0)
        return tuple(_SLIDING if i >= first else _FULL for i in range(layers))
    pattern: Any = c.get("sliding_window_pattern", 0)
    if isinstance(pattern, list):  # GGUF: of each layer, whether it slides
        if len(pattern) < layers or not all(type(kind) in (bool, int) for kind in pattern):
            raise c.error("sliding_window_pattern", f"one value for each of {layers}", pattern)
        return tuple(_SLIDING if kind else _FULL for kind in pattern[:layers])
    every = c.integer("sliding_window_pattern", MAX_LAYERS, 0, low=0)
    return tuple(_FULL if every and (i + 1) % every == 0 else _SLIDING for i in range(layers))


def _no_rope_layers(c: _Values, layers: int) -> tuple[int, ...]:
    flags = c.items("no_rope_layers", int)
    if flags:
        if len(flags) != layers or not set(flags) <= {0, 1}:
            raise c.error("no_rope_layers", f"a 0 or 1 for each of {layers} layers", flags)
        return tuple(flags) if 0 in flags else ()
    if not c.is_set("no_rope_layer_interval"):
        return ()
    every = c.integer("no_rope_layer_interval", MAX_LAYERS)
    return tuple(int((i + 1) % every != 0) for i in range(layers))


def _partial_rotary_factor(c: _Values) -> float:
    for where in (c.values.get("rope_parameters"), c.values.get("rope_scaling"), c.values):
        if isinstance(where, Mapping) and where.get("partial_rotary_factor") is not None:
            return _Values(where, c.source).number("partial_rotary_factor", 1.0)
    return 1.0


def _defaults_of(model_type: str) -> Mapping[str, Any]:
    from inferno.models import defaults_of  # late: models are written in terms of the config

    return defaults_of(model_type)


def _refuse_unused(
    model_type: str, features: dict[str, Any], c: _Values, max_position_embeddings: int
) -> None:
    """Refuse a feature that the model's file would pass over in silence."""
    from inferno.models import uses_of

    uses = uses_of(model_type)
    if (features["sliding_window"] or 0) >= max_position_embeddings and (
        "sliding_window" not in uses
    ):
        features |= {"sliding_window": None, "layer_types": ()}  # it shows all there can be
    for name in _FEATURES - uses:
        value = features.get(name, getattr(ModelConfig, name))
        if value != getattr(ModelConfig, name):
            raise UnsupportedModel(
                f"`{c.name(name)}` in {c.source}: {shown(value)} is not supported for "
                f"`{model_type}`",
                hint="a model of another family, or another conversion of this one, may run",
            )
    if "num_experts" in uses and not features.get("num_experts"):
        raise InvalidCheckpoint(f"`{c.name('num_experts')}` is missing from {c.source}")


def _rope(c: _Values) -> tuple[float, dict[str, Any] | None, float | None]:
    """Return theta and the scaling, from `rope_parameters` (transformers 5) or the older keys.

    And the theta of layers with a window, where that is another.
    """
    key = "rope_parameters" if c.values.get("rope_parameters") is not None else "rope_scaling"
    found = c.values.get(key)
    parameters = {} if found is None else found
    if not isinstance(parameters, dict):
        raise c.error(key, "an object", found)
    local = c.optional_number("rope_local_base_freq", 1e12)
    if parameters and all(isinstance(value, dict) for value in parameters.values()):
        if set(parameters) != {_FULL, _SLIDING} or parameters[_SLIDING].get("rope_type") not in (
            None,
            "default",
        ):
            raise UnsupportedModel(
                f"`{key}`: RoPE that varies by layer is not supported but for plain RoPE in the "
                "layers with a window"
            )
        local = _Values(parameters[_SLIDING], c.source).number("rope_theta", 1e12)
        parameters = parameters[_FULL]
    scaling = dict(parameters)
    inner_theta = scaling.pop("rope_theta", None)
    scaling.pop("partial_rotary_factor", None)
    outer_theta = c.values.get("rope_theta")
    if None not in (inner_theta, outer_theta) and inner_theta != outer_theta:
        raise c.error("rope_theta", f"{shown(inner_theta)} as in {key}", outer_theta)
    theta = _Values(
        {"rope_theta": outer_theta if inner_theta is None else inner_theta}, c.source
    ).number("rope_theta", 1e12, c.defaults.get("rope_theta", 10_000.0))

    old, new = scaling.pop("type", None), scaling.pop("rope_type", None)
    if None not in (old, new) and old != new:
        raise c.error(key, f"`type` and `rope_type` to agree on {shown(new)}", old)
    rope_type = old if new is None else new
    if rope_type is None and scaling:
        raise c.error(key, "a `rope_type`", found)
    if rope_type in (None, "default"):
        return theta, None, local
    if not isinstance(rope_type, str):
        raise c.error(key, "a `rope_type` that is text", rope_type)
    if "short_factor" in scaling:
        rope_type = "longrope"  # early Phi-3 files call it su or yarn
    original = "original_max_position_embeddings"
    if scaling.get(original) is None and c.values.get(original) is not None:
        scaling[original] = c.integer(original, MAX_CONTEXT)
    return theta, {"rope_type": rope_type, **scaling}, local


# GGUF's names of what `_features` reads.
_GGUF_KEYS = {
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "rope_theta": "rope.freq_base",
    "partial_rotary_factor": "rope.dimension_count",
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "norm_topk_prob": "expert_weights_norm",
}

# Values of GGUF keys with which a file computes what it would without them.
_GGUF_HARMLESS = {
    "expert_weights_scale": (0, 1),
    "expert_shared_count": (0,),
    "expert_group_count": (0, 1),
    "leading_dense_block_count": (0,),
    "expert_gating_func": (0, 1, 3),  # softmax of all, or of the chosen: both are divided by sums
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
}


def _gguf_model_type(architecture: str, metadata: Mapping[str, Any]) -> str:
    """Return what Hugging Face calls an architecture of GGUF."""
    if architecture == "llama" and metadata.get("llama.expert_count"):
        return "mixtral"
    names = {"gemma3": "gemma3_text", "gpt-oss": "gpt_oss", "qwen3moe": "qwen3_moe"}
    return names.get(architecture, architecture)


def _gguf_features(
    g: _Values, architecture: str, head_dim: int, width_by_heads: int
) -> dict[str, Any]:
    """Return what GGUF says otherwise than config.json, or leaves to the architecture."""
    for key, harmless in _GGUF_HARMLESS.items():
        value = g.values.get(g.prefix + key)
        if value is not None and value not in harmless:
            raise UnsupportedModel(f"`{g.prefix}{key}`: {shown(value)} is not supported")
    rotary_dim = g.integer("rope.dimension_count", MAX_SIZE, head_dim)
    features: dict[str, Any] = {
        "partial_rotary_factor": rotary_dim / head_dim,
        "rope_local_base_freq": g.optional_number("rope_local_base_freq", 1e12),
    }
    if architecture == "qwen3moe":
        features["norm_topk_prob"] = g.boolean("norm_topk_prob", True)
    if architecture in ("gemma2", "gemma3"):
        # The 27B models of both scale by width / heads, which no key of GGUF says: llama.cpp tells
        # them by their layers.
        is_27b = g.integer("block_count", MAX_LAYERS) == {"gemma2": 46, "gemma3": 62}[architecture]
        features["query_pre_attn_scalar"] = float(width_by_heads if is_27b else head_dim)
    return features


# GGUF's names below `{arch}.rope.scaling.`, and those in config.json.
_GGUF_ROPE_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_attn_factor": "attention_factor",
    "yarn_ext_factor": "extrapolation_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
    "yarn_log_multiplier": "log_multiplier",
}


def _gguf_rope_scaling(g: _Values, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    # Files from before `rope.scaling.*` have this one key.
    if g.values.get(f"{g.prefix}rope.scale_linear") is not None:
        factor = g.number("rope.scale_linear", 1e9)
        return None if factor == 1 else {"rope_type": "linear", "factor": factor}
    kind = g.text("rope.scaling.type", "none")
    scaling: dict[str, Any] = {"rope_type": kind}
    for theirs, ours in _GGUF_ROPE_SCALING.items():
        if g.values.get(f"{g.prefix}rope.scaling.{theirs}") is not None:
            scaling[ours] = g.number(f"rope.scaling.{theirs}", 1e9)
    if kind == "none":
        return None
    if kind == "yarn":
        # Factors of the sharpening that the scaling implies, in ggml's arithmetic.
        for key in ("attention_factor", "extrapolation_factor", "log_multiplier"):
            if scaling.pop(key, 1) != 1:
                raise UnsupportedModel(f"`{g.prefix}rope.scaling`: a {key} is not supported")
        scaling |= defaults.get("rope_scaling", {})
    return scaling


def _unique(*ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(token for group in ids for token in group))


def end_of_turn_ids(control: Mapping[str, int]) -> list[int]:
    """Return the ids of those control tokens whose names say that they end a turn.

    Where `<|return|>` does, as in gpt-oss, `<|end|>` is between the messages of one turn.
    """
    ends = END_OF_TURN_TOKENS - ({"<|end|>"} if "<|return|>" in control else set())
    return sorted(control[text] for text in ends & control.keys())


def _control_end_tokens(tokens: list[Any], types: list[Any]) -> list[int]:
    return end_of_turn_ids(
        {
            text: token
            for token, (text, kind) in enumerate(zip(tokens, types, strict=False))
            if kind in (_CONTROL, _USER_DEFINED) and isinstance(text, str)
        }
    )


def _added_end_tokens(tokenizer_config: Mapping[str, Any]) -> list[int]:
    """Return the ids of tokenizer_config.json's `eos_token` and of tokens that end a turn."""
    added = tokenizer_config.get("added_tokens_decoder")
    if not isinstance(added, dict):
        return []  # newer files leave them to tokenizer.json
    eos = tokenizer_config.get("eos_token")
    eos = eos.get("content") if isinstance(eos, dict) else eos
    special: dict[str, int] = {}
    ids = []
    for key, token in added.items():
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise InvalidCheckpoint(
                f"`added_tokens_decoder` in tokenizer_config.json: expected tokens with their "
                f"`content`, found {shown(token)}"
            )
        text = token["content"]
        if text == eos or (token.get("special") is True and text in END_OF_TURN_TOKENS):
            if not key.isascii() or not key.isdigit() or len(key) > 9:
                raise InvalidCheckpoint(
                    f"`added_tokens_decoder` in tokenizer_config.json: expected token ids as keys, "
                    f"found {shown(key)}"
                )
            special[text] = int(key)
            if text == eos:
                ids.append(int(key))
    return [*ids, *end_of_turn_ids(special)]


def _generation(generation_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling defaults of generation_config.json."""
    keys = (
        "temperature",
        "top_k",
        "typical_p",
        "top_p",
        "min_p",
        "repetition_penalty",
        "suppress_tokens",
    )
    sampling = {
        key: generation_config[key] for key in keys if generation_config.get(key) is not None
    }
    if generation_config.get("do_sample") is False:
        sampling["temperature"] = 0.0
    return _checked_sampling(sampling, "generation_config.json")


def _checked_sampling(sampling: dict[str, Any], source: str) -> dict[str, Any]:
    if sampling.get("repeat_last_n") == -1:  # llama.cpp's word for the whole text
        sampling["repeat_last_n"] = None
    try:
        params = SamplingParams(**sampling)
    except InvalidOption as error:
        raise InvalidCheckpoint(f"{source}: {error.message}") from None
    return {key: getattr(params, key) for key in sampling}
