"""How a model's files say that it is best sampled, under the names of `SamplingParams`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.errors import InvalidCheckpoint, InvalidOption
from inferno.options import SamplingParams

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


def generation_defaults(generation_config: Mapping[str, Any]) -> dict[str, Any]:
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
    return _checked(sampling, "generation_config.json")


def gguf_sampling(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling defaults of GGUF metadata."""
    sampling = {ours: metadata[key] for key, ours in _GGUF_SAMPLING.items() if key in metadata}
    return _checked(sampling, "the GGUF metadata")


def _checked(sampling: dict[str, Any], source: str) -> dict[str, Any]:
    if sampling.get("repeat_last_n") == -1:  # llama.cpp's word for the whole text
        sampling["repeat_last_n"] = None
    try:
        params = SamplingParams(**sampling)
    except InvalidOption as error:
        raise InvalidCheckpoint(f"{source}: {error.message}") from None
    return {key: getattr(params, key) for key in sampling}
