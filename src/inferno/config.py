"""What a model is made of: Hugging Face's words for it, read from config.json or from GGUF.

Knows nothing of files or tensors' bytes, and leaves to `models/` what an architecture does with
its numbers. Both sources are hostile: each number is checked before anyone multiplies with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferno.errors import InvalidCheckpoint, InvalidOption, UnsupportedModel
from inferno.excerpt import quoted, shown
from inferno.options import SamplingParams

# Far above any real model, far below what overflows when a few of them are multiplied.
MAX_SIZE = 1 << 24
MAX_LAYERS = 1 << 12
MAX_CONTEXT = (1 << 31) - 1

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
    without its long arrays.
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
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

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

        hidden_size = c.integer("hidden_size", MAX_SIZE)
        num_attention_heads = c.integer("num_attention_heads", MAX_SIZE)
        if config.get("head_dim") is None and hidden_size % num_attention_heads:
            raise c.error(
                "hidden_size",
                f"a multiple of num_attention_heads = {num_attention_heads}",
                hidden_size,
            )
        rope_theta, rope_scaling = _rope(c)
        return cls(
            model_type=model_type,
            architecture=architecture,
            vocab_size=c.integer("vocab_size", MAX_SIZE),
            hidden_size=hidden_size,
            intermediate_size=c.integer("intermediate_size", MAX_SIZE),
            num_hidden_layers=c.integer("num_hidden_layers", MAX_LAYERS),
            num_attention_heads=num_attention_heads,
            num_key_value_heads=c.integer("num_key_value_heads", MAX_SIZE, num_attention_heads),
            head_dim=c.integer("head_dim", MAX_SIZE, hidden_size // num_attention_heads),
            max_position_embeddings=c.integer("max_position_embeddings", MAX_CONTEXT, 2048),
            rms_norm_eps=c.number("rms_norm_eps", 1.0, 1e-6),
            rope_theta=rope_theta,
            rope_scaling=rope_scaling,
            hidden_act=c.text("hidden_act", "silu"),
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
        _check_supported(architecture, architecture)
        g = _Values(metadata, "the GGUF metadata", f"{architecture}.")
        if g.integer("expert_count", MAX_SIZE, 0, low=0):
            raise UnsupportedModel(
                f"`{architecture}.expert_count`: mixtures of experts are not supported"
            )

        hidden_size = g.integer("embedding_length", MAX_SIZE)
        num_attention_heads = g.integer("attention.head_count", MAX_SIZE)
        if metadata.get(f"{architecture}.attention.key_length") is None and (
            hidden_size % num_attention_heads
        ):
            raise g.error(
                "embedding_length", f"a multiple of head_count = {num_attention_heads}", hidden_size
            )
        head_dim = g.integer("attention.key_length", MAX_SIZE, hidden_size // num_attention_heads)
        for key in ("attention.value_length", "rope.dimension_count"):
            found = g.integer(key, MAX_SIZE, head_dim)
            if found != head_dim:
                raise UnsupportedModel(
                    f"`{architecture}.{key}`: expected head_dim = {head_dim}, found {found}",
                    hint="heads that are rotated in part, or whose keys and values differ in size, "
                    "are not supported",
                )
        max_position_embeddings = g.integer("context_length", MAX_CONTEXT)
        if g.integer("attention.sliding_window", MAX_CONTEXT, 0, low=0) not in (
            0,
            max_position_embeddings,
        ):
            raise UnsupportedModel(
                f"`{architecture}.attention.sliding_window`: sliding windows are not supported"
            )
        tokenizer = _Values(metadata, "the GGUF metadata", "tokenizer.ggml.")
        tokens = tokenizer.items("tokens", str)
        embedding = shapes.get("model.embed_tokens.weight", (0,))
        vocab_size = g.integer("vocab_size", MAX_SIZE, embedding[0] or len(tokens) or None)
        if len(tokens) > vocab_size:
            raise tokenizer.error("tokens", f"at most vocab_size = {vocab_size:,} of them", tokens)
        return cls(
            model_type=architecture,
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=g.integer("feed_forward_length", MAX_SIZE),
            num_hidden_layers=g.integer("block_count", MAX_LAYERS),
            num_attention_heads=num_attention_heads,
            num_key_value_heads=g.integer("attention.head_count_kv", MAX_SIZE, num_attention_heads),
            head_dim=head_dim,
            max_position_embeddings=max_position_embeddings,
            rms_norm_eps=g.number("attention.layer_norm_rms_epsilon", 1.0),
            rope_theta=g.number("rope.freq_base", 1e12, 10_000.0),
            rope_scaling=_gguf_rope_scaling(g),
            tie_word_embeddings="lm_head.weight" not in shapes,
            attention_bias=_Q_BIAS in shapes,
            mlp_bias=_GATE_BIAS in shapes,
            bos_token_id=tokenizer.token("bos_token_id"),
            eos_token_ids=_unique(
                tokenizer.tokens("eos_token_id"),
                tokenizer.tokens("eot_token_id"),
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
        )


_Q_BIAS = "model.layers.0.self_attn.q_proj.bias"
_GATE_BIAS = "model.layers.0.mlp.gate_proj.bias"


class _Values:
    """Typed reading of a mapping: `source` names it in errors, `prefix` goes before each key.

    A key that is absent or null has its default; without a default, that is an error.
    """

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "") -> None:
        self.values = values
        self.source = source
        self.prefix = prefix

    def integer(self, key: str, high: int, default: int | None = None, *, low: int = 1) -> int:
        value = self.get(key, default)
        if isinstance(value, list) and value and all(type(v) is int for v in value):
            raise UnsupportedModel(
                f"`{self.prefix}{key}` in {self.source}: values that vary by layer "
                "are not supported"
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
        value = self.values.get(self.prefix + key)
        if value is None:
            value = default
        if value is None:
            raise InvalidCheckpoint(f"`{self.prefix}{key}` is missing from {self.source}")
        return value

    def error(self, key: str, expected: str, found: Any) -> InvalidCheckpoint:
        number = f"{len(found):,} of them" if isinstance(found, list) else shown(found)
        return InvalidCheckpoint(
            f"`{self.prefix}{key}` in {self.source}: expected {expected}, found {number}",
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
    method = config.get("quantization_config")
    if method:
        method = method.get("quant_method") if isinstance(method, dict) else method
        raise UnsupportedModel(
            f"`quantization_config`: checkpoints quantized with {shown(method)} are not supported",
            hint="pick the unquantized model, or a Q8_0 or Q4_0 GGUF of it",
        )
    window, layer_types = config.get("sliding_window"), config.get("layer_types") or []
    # Qwen2 names a window that `use_sliding_window` turns off, and transformers goes by that.
    if (window is not None and config.get("use_sliding_window", True)) or any(
        kind != "full_attention" for kind in _as_list(layer_types)
    ):
        raise UnsupportedModel(
            f"`sliding_window`: attention over a window of {shown(window)} tokens is not supported"
        )
    for where in (config, config.get("rope_parameters"), config.get("rope_scaling")):
        rotary = where.get("partial_rotary_factor") if isinstance(where, dict) else None
        if rotary is not None and rotary != 1:
            raise UnsupportedModel(
                f"`partial_rotary_factor`: expected 1, found {shown(rotary)}",
                hint="heads that are rotated in part are not supported",
            )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _rope(c: _Values) -> tuple[float, dict[str, Any] | None]:
    """Return theta and the scaling, from `rope_parameters` (transformers 5) or the older keys."""
    key = "rope_parameters" if c.values.get("rope_parameters") is not None else "rope_scaling"
    found = c.values.get(key)
    parameters = {} if found is None else found
    if not isinstance(parameters, dict):
        raise c.error(key, "an object", found)
    if parameters and all(isinstance(value, dict) for value in parameters.values()):
        raise UnsupportedModel(f"`{key}`: RoPE that varies by layer is not supported")
    scaling = dict(parameters)
    inner_theta = scaling.pop("rope_theta", None)
    scaling.pop("partial_rotary_factor", None)
    outer_theta = c.values.get("rope_theta")
    if None not in (inner_theta, outer_theta) and inner_theta != outer_theta:
        raise c.error("rope_theta", f"{shown(inner_theta)} as in {key}", outer_theta)
    theta = _Values(
        {"rope_theta": outer_theta if inner_theta is None else inner_theta}, c.source
    ).number("rope_theta", 1e12, 10_000.0)

    old, new = scaling.pop("type", None), scaling.pop("rope_type", None)
    if None not in (old, new) and old != new:
        raise c.error(key, f"`type` and `rope_type` to agree on {shown(new)}", old)
    rope_type = old if new is None else new
    if rope_type is None and scaling:
        raise c.error(key, "a `rope_type`", found)
    if rope_type in (None, "default"):
        return theta, None
    if not isinstance(rope_type, str):
        raise c.error(key, "a `rope_type` that is text", rope_type)
    return theta, {"rope_type": rope_type, **scaling}


# GGUF's names below `{arch}.rope.scaling.`, and those in config.json.
_GGUF_ROPE_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_ext_factor": "extrapolation_factor",
    "yarn_attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
    "yarn_log_multiplier": "log_multiplier",
}


def _gguf_rope_scaling(g: _Values) -> dict[str, Any] | None:
    # Files from before `rope.scaling.*` have this one key.
    if g.values.get(f"{g.prefix}rope.scale_linear") is not None:
        factor = g.number("rope.scale_linear", 1e9)
        return None if factor == 1 else {"rope_type": "linear", "factor": factor}
    kind = g.text("rope.scaling.type", "none")
    if kind == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": kind}
    for theirs, ours in _GGUF_ROPE_SCALING.items():
        if g.values.get(f"{g.prefix}rope.scaling.{theirs}") is not None:
            scaling[ours] = g.number(f"rope.scaling.{theirs}", 1e9)
    return scaling


def _unique(*ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(token for group in ids for token in group))


def _control_end_tokens(tokens: list[Any], types: list[Any]) -> list[int]:
    return [
        token
        for token, (text, kind) in enumerate(zip(tokens, types, strict=False))
        if kind in (_CONTROL, _USER_DEFINED) and text in END_OF_TURN_TOKENS
    ]


def _added_end_tokens(tokenizer_config: Mapping[str, Any]) -> list[int]:
    """Return the ids of tokenizer_config.json's `eos_token` and of tokens that end a turn."""
    added = tokenizer_config.get("added_tokens_decoder")
    if not isinstance(added, dict):
        return []  # newer files leave them to tokenizer.json
    eos = tokenizer_config.get("eos_token")
    eos = eos.get("content") if isinstance(eos, dict) else eos
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
            ids.append(int(key))
    return ids


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
