"""The sampling fields of OpenAI, llama.cpp and others, as `SamplingParams`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from inferno.excerpt import shown
from inferno.options import MAX_LOGPROBS, MAX_SEED, SamplingParams
from inferno.server.failures import failure_of, invalid
from inferno.server.fields import Fields, wrong

if TYPE_CHECKING:
    from inferno.engine import Engine

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 4096
MAX_CHOICES = 16

# Fields that go to `SamplingParams` as they are.
SAME_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "presence_penalty",
    "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length", "xtc_probability",
    "xtc_threshold", "ignore_eos",
)  # fmt: skip
# Other names of the same, the first of which wins.
REPETITION_PENALTIES = ("repetition_penalty", "repeat_penalty")
MAX_TOKENS = ("max_completion_tokens", "max_tokens", "n_predict", "num_predict")
LOOK_BACKS = ("repeat_last_n", "dry_penalty_last_n")

# Known to change nothing here: notes to a provider, of a cache that is shared anyway, of hardware.
IGNORED = (
    "user", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "metadata", "store", "service_tier", "verbosity", "moderation",
    "cache_prompt", "id_slot", "keep_alive", "samplers", "min_keep",
)  # fmt: skip
# Known to change the text: why each is refused, and the values that ask for nothing.
REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "mirostat": ("Mirostat sampling is not supported", (0,)),
    "dynatemp_range": ("dynamic temperature is not supported", (0, 0.0)),
    "min_tokens": ("a least number of tokens is not supported", (0,)),
    "lora": ("adapters are not supported", ([],)),
    "use_beam_search": ("beam search is not supported", (False,)),
}


def sampling_of(fields: Fields, engine: Engine, *, logprobs: int = 0) -> SamplingParams:
    """Return what the fields ask for, over the model's own defaults. Raises RequestFailed.

    The seed is always set: a fresh one where none was given, one for all choices.
    """
    overrides: dict[str, Any] = {"logprobs": logprobs}
    for name in SAME_NAMES:
        if (value := fields.take(name)) is not None:
            overrides[name] = value
    for name in REPETITION_PENALTIES[::-1]:
        if (value := fields.take(name)) is not None:
            overrides["repetition_penalty"] = value
    for name in LOOK_BACKS:
        if (value := fields.integer(name, -1, 2**31 - 1)) is not None:
            overrides[name] = None if value == -1 else value
    for name in MAX_TOKENS[::-1]:
        if (value := fields.integer(name, -1, 2**31 - 1)) is not None:
            overrides["max_tokens"] = None if value == -1 else value
    seed = fields.integer("seed", -(2**63), MAX_SEED)
    # llama.cpp's -1 is a fresh one; other negative ones are seeds to OpenAI's clients.
    overrides["seed"] = secrets.randbits(63) if seed is None or seed == -1 else seed % 2**64
    overrides["stop"] = _stops(fields)
    if (bias := _logit_bias(fields)) is not None:
        overrides["logit_bias"] = bias
    breakers = fields.items("dry_sequence_breakers", 64)
    if breakers is not None:
        overrides["dry_sequence_breakers"] = tuple(breakers)
    if (prediction := _prediction(fields)) is not None:
        overrides["prediction"] = prediction
    if (speculation := fields.take("speculation")) is not None:
        overrides["speculation"] = speculation
    for name, (why, harmless) in REFUSED.items():
        fields.refuse(name, why, *harmless)
    fields.ignore(*IGNORED)
    try:
        return SamplingParams().merged(**{**engine.config.generation, **overrides})
    except Exception as error:
        raise failure_of(error) from None


def choices_of(fields: Fields) -> int:
    """Return `n`, how many texts are asked for."""
    n = fields.integer("n", 1, MAX_CHOICES)
    return 1 if n is None else n


def chat_logprobs_of(fields: Fields) -> tuple[bool, int]:
    """Return whether log probabilities are asked for, and of how many tokens beside each."""
    wanted = fields.flag("logprobs")
    top = fields.integer("top_logprobs", 0, MAX_LOGPROBS)
    if top and not wanted:
        raise invalid("top_logprobs", "`top_logprobs`: expected `logprobs` to be true with it")
    return wanted, top or 0


def effective(params: SamplingParams) -> dict[str, Any]:
    """Return the parameters that a text came by, as an answer reports them."""
    names = (*SAME_NAMES, "repetition_penalty", "repeat_last_n", "seed", "max_tokens")
    return {name: getattr(params, name) for name in names}


def _stops(fields: Fields) -> tuple[str, ...]:
    value = fields.take("stop")
    texts = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise wrong("stop", "a string or a list of strings", value)
    if len(texts) > MAX_STOPS:
        raise invalid("stop", f"`stop`: expected at most {MAX_STOPS} texts, found {len(texts):,}")
    if any(len(text) > MAX_STOP_CHARACTERS for text in texts):
        raise invalid("stop", f"`stop`: expected texts of at most {MAX_STOP_CHARACTERS} characters")
    if "" in texts:
        fields.note("stop")  # an empty text stops nothing
    return tuple(text for text in texts if text)


def _logit_bias(fields: Fields) -> dict[Any, Any] | None:
    """Return biases by token: OpenAI's object, or llama.cpp's list of pairs."""
    value = fields.take("logit_bias")
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value):
        return {_hashable(token): -100.0 if bias is False else bias for token, bias in value}
    raise wrong("logit_bias", "an object or a list of pairs", value)


def _hashable(token: Any) -> Any:
    if isinstance(token, (list, dict)):
        raise invalid("logit_bias", f"`logit_bias`: expected token ids, found {shown(token)}")
    return token


def _prediction(fields: Fields) -> str | None:
    """Return the text that the reply is expected to be like, of OpenAI's `prediction`."""
    value = fields.mapping("prediction")
    if value is None:
        return None
    content = value.get("content")
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        content = "".join(part["text"] for part in content)
    if value.get("type") != "content" or not isinstance(content, str):
        raise wrong("prediction", '{"type": "content", "content": text}', value)
    return content
