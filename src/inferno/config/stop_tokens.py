"""Which tokens end a turn, as the files that name some of them and the tokens' own names say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inferno.errors import InvalidCheckpoint
from inferno.excerpt import shown

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

_CONTROL, _USER_DEFINED = 3, 4  # ggml's token types; converters take one for the other


def union(*ids: Iterable[int]) -> tuple[int, ...]:
    """Return the ids of all groups, each once, in their order."""
    return tuple(dict.fromkeys(token for group in ids for token in group))


def end_of_turn_ids(control: Mapping[str, int]) -> list[int]:
    """Return the ids of those control tokens whose names say that they end a turn.

    Where `<|return|>` does, as in gpt-oss, `<|end|>` is between the messages of one turn.
    """
    ends = END_OF_TURN_TOKENS - ({"<|end|>"} if "<|return|>" in control else set())
    return sorted(control[text] for text in ends & control.keys())


def control_end_tokens(tokens: list[Any], types: list[Any]) -> list[int]:
    """Return the ids of those of GGUF's `tokens` that end a turn, by their names and types."""
    return end_of_turn_ids(
        {
            text: token
            for token, (text, kind) in enumerate(zip(tokens, types, strict=False))
            if kind in (_CONTROL, _USER_DEFINED) and isinstance(text, str)
        }
    )


def added_end_tokens(tokenizer_config: Mapping[str, Any]) -> list[int]:
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
