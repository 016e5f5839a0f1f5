"""Which format each matrix gets when a model is quantized to a type: "q4_0", "q4_k_m", …

A type is a format for most matrices, and better ones for those where an error costs more. Knows
names and shapes of tensors; no bytes, no files.

Source: `llama_tensor_get_type` of llama.cpp, for what it calls Q3_K_M, Q4_K_M and so on, and for
the formats that stand in where rows are no whole blocks of 256.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.weights.tensor import FORMATS

Layers = Callable[[int, int], bool]  # (a layer, of so many) -> whether a rule is for it


def _every(layer: int, layers: int) -> bool:
    return True


def _first(share: int) -> Layers:
    return lambda layer, layers: layer < layers // share


def _more_bits(layer: int, layers: int) -> bool:
    """The first and the last eighth, and every third layer between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


class Recipe(NamedTuple):
    """The format of most matrices, and the first rule that holds for some: by the role of each."""

    format: str
    file_type: int  # llama_ftype
    rules: Mapping[str, tuple[tuple[Layers, str], ...]] = {}


# A single K-format goes by the file type of the mix that is nearest to it.
_RECIPES = {
    "f32": Recipe("f32", 0),
    "f16": Recipe("f16", 1),
    "bf16": Recipe("bf16", 32),
    "q8_0": Recipe("q8_0", 7),
    "q4_0": Recipe("q4_0", 2),
    "q4_1": Recipe("q4_1", 3),
    "q5_0": Recipe("q5_0", 8),
    "q5_1": Recipe("q5_1", 9),
    "q2_k": Recipe("q2_k", 10),
    "q3_k": Recipe("q3_k", 11),
    "q4_k": Recipe("q4_k", 14),
    "q5_k": Recipe("q5_k", 16),
    "q6_k": Recipe("q6_k", 18),
    "q3_k_m": Recipe(
        "q3_k",
        12,
        {
            "v_proj": ((lambda layer, layers: layer < 2, "q5_k"), (_every, "q4_k")),
            "down_proj": ((_first(16), "q5_k"), (_every, "q4_k")),
            "o_proj": ((_every, "q4_k"),),
            "qkv_proj": ((_every, "q4_k"),),
        },
    ),
    "q3_k_l": Recipe(
        "q3_k",
        13,
        {
            "v_proj": ((_every, "q5_k"),),
            "down_proj": ((_every, "q5_k"),),
            "o_proj": ((_every, "q5_k"),),
            "qkv_proj": ((_every, "q4_k"),),
        },
    ),
    "q4_k_s": Recipe(
        "q4_k",
        14,
        {
            "v_proj": ((lambda layer, layers: layer < 4, "q5_k"),),
            "down_proj": ((_first(8), "q5_k"),),
        },
    ),
    "q4_k_m": Recipe(
        "q4_k",
        15,
        {
            "v_proj": ((_more_bits, "q6_k"),),
            "down_proj": ((_more_bits, "q6_k"),),
            "qkv_proj": ((_every, "q5_k"),),
        },
    ),
    "q5_k_m": Recipe(
        "q5_k",
        17,
        {
            "v_proj": ((_more_bits, "q6_k"),),
            "down_proj": ((_more_bits, "q6_k"),),
            "qkv_proj": ((_every, "q6_k"),),
        },
    ),
}

# An embedding is read a row at a time, so its size costs no speed; tied, it is the head too, and
# the head's errors reach every logit undamped.
_EMBEDDING_FORMAT = {"q4_0": "q8_0", "q4_1": "q8_0", "q5_0": "q8_0", "q5_1": "q8_0"}
_HEAD_FORMAT = dict.fromkeys(("q2_k", "q3_k", "q4_k", "q5_k", "q6_k"), "q6_k")

# Where rows are no whole blocks of 256; ggml takes IQ4_NL for the first two, which we only read.
_FALLBACK = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
_LAST_FALLBACK = "f16"  # and no blocks of 32 either

_ROLE = re.compile(r"model\.layers\.([0-9]+)\..*?(\w+)\.weight")
_SAME_ROLE = {"w2": "down_proj"}  # Mixtral's word


def weight_choices() -> list[str]:
    """Return what a model can be quantized to: the formats that floats become, then mixes."""
    return list(_RECIPES)


def check_type(option: str, type: object, otherwise: str | None = None) -> None:
    """Raise unless `type`, the value of `option`, is one of `weight_choices`.

    The hint is the type that was meant, if one is close, else `otherwise`.

    Raises:
        InvalidOption: it is not.
    """
    choices = weight_choices()
    if type in choices:
        return
    close = difflib.get_close_matches(type.lower(), choices, n=1) if isinstance(type, str) else []
    raise InvalidOption(
        f"`{option}`: expected one of {', '.join(choices)}, found {shown(type)}",
        hint=f"did you mean `{close[0]}`?" if close else otherwise,
    )


def file_type(type: str) -> int | None:
    """Return the number that GGUF files of a type carry as `general.file_type`."""
    recipe = _RECIPES.get(type)
    return None if recipe is None else recipe.file_type


def format_of(type: str, name: str, columns: int, *, layers: int, tied: bool) -> str:
    """Return the format of the matrix `name`, a Hugging Face name, of so many columns.

    `layers` is how many the model has, `tied` whether its embedding is the head too.
    """
    recipe = _RECIPES[type]
    format = recipe.format
    match = _ROLE.fullmatch(name)
    if match is not None:
        layer, role = int(match[1]), match[2]
        for holds, better in recipe.rules.get(_SAME_ROLE.get(role, role), ()):
            if holds(layer, layers):
                format = better
                break
    elif name == "model.embed_tokens.weight":
        format = _EMBEDDING_FORMAT.get(format, format)
    if name == "lm_head.weight" or (tied and name == "model.embed_tokens.weight"):
        format = _HEAD_FORMAT.get(format, format)
    if format in _FALLBACK and columns % FORMATS[format].block:
        format = _FALLBACK[format]
        if columns % FORMATS[format].block:
            format = _LAST_FALLBACK
    return format
