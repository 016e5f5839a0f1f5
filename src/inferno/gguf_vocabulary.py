"""A tokenizer.json in the words of GGUF: the `tokenizer.ggml.*` keys that make the same tokenizer.

GGUF can say less than tokenizer.json. What cannot be said exactly is refused, never approximated.
Knows nothing of models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inferno.errors import InfernoError, UnsupportedModel
from inferno.excerpt import shown
from inferno.tokenizer import Tokenizer
from inferno.tokenizer.merges import merges_by_score
from inferno.tokenizer.tokenizer_json import components
from inferno.tokenizer.vocabulary import (
    BYTE,
    BYTE_PIECE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)

PREFIX = "tokenizer.ggml."


def gguf_vocabulary(
    path: Path, tokenizer: Tokenizer, vocab_size: int, chat_template: str | None
) -> dict[str, Any]:
    """Return the keys for the tokenizer.json at `path`, which `tokenizer` was read from.

    `vocab_size` is the model's: ids beyond the tokenizer's become unused ones.

    Raises:
        UnsupportedModel: it does something that GGUF has no word for.
    """
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(str(path))
    file = json.loads(path.read_text("utf-8"))
    model = file["model"]
    if model["type"] != "BPE":
        raise _unsaid(f"a {model['type']} vocabulary")
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    texts, kinds = _tokens(backend, tokenizer, vocab_size)
    keys: dict[str, Any] = {}
    if any(part["type"] == "ByteLevel" for part in components(backend.pre_tokenizer)):
        keys["model"], keys["pre"] = "gpt2", _rule_name(backend)
        keys["merges"] = [f"{left} {right}" for left, right in merges]
    else:
        kinds = [BYTE if BYTE_PIECE.fullmatch(t) else k for t, k in zip(texts, kinds, strict=True)]
        keys["model"], keys["pre"] = "llama", "default"
        keys["add_space_prefix"] = _has_space_prefix(backend, model)
        keys["scores"] = _scores(texts, merges)
        if merges_by_score(texts, kinds, keys["scores"]) != merges:
            # Scores rank pieces, not the pairs that make them: the order among those is lost,
            # unless it is written down. Readers that go by scores alone join the leftmost.
            _check_ranked_by_piece(merges)
            keys["merges"] = [f"{left} {right}" for left, right in merges]
    keys["tokens"], keys["token_type"] = texts, kinds
    if model.get("unk_token") is not None:
        keys["unknown_token_id"] = backend.token_to_id(model["unk_token"])
    if tokenizer.bos_id is not None:
        keys["bos_token_id"] = tokenizer.bos_id
    if tokenizer.eos_ids:
        keys["eos_token_id"] = tokenizer.eos_ids[0]
    keys["add_bos_token"] = tokenizer.adds_bos
    keys["add_eos_token"] = False
    named = {f"{PREFIX}{key}": value for key, value in keys.items()}
    _check_same(tokenizer, named)
    if chat_template is not None:
        named["tokenizer.chat_template"] = chat_template
    return named


def _tokens(backend: Any, tokenizer: Tokenizer, vocab_size: int) -> tuple[list[str], list[int]]:
    """Return every id's text and type, up to the model's `vocab_size`."""
    vocab = {id: text for text, id in backend.get_vocab(with_added_tokens=True).items()}
    texts = [vocab.get(id, f"[PAD{id}]") for id in range(vocab_size)]
    kinds = [NORMAL if id in vocab else UNUSED for id in range(vocab_size)]
    control = set(tokenizer.control_tokens.values())
    for id, token in backend.get_added_tokens_decoder().items():
        if token.lstrip or token.rstrip or token.single_word:
            raise _unsaid(
                f"the added token {shown(token.content)} that takes part of its neighbours"
            )
        if id not in control and token.normalized and backend.normalizer is not None:
            raise _unsaid(f"the added token {shown(token.content)} that is normalized")
        kinds[id] = CONTROL if id in control else USER_DEFINED
    unknown = getattr(backend.model, "unk_token", None)
    if unknown is not None and kinds[backend.token_to_id(unknown)] == CONTROL:
        kinds[backend.token_to_id(unknown)] = UNKNOWN
    return texts, kinds


def _rule_name(backend: Any) -> str:
    """Return the name by which GGUF knows the way that a byte-level tokenizer cuts text."""
    from inferno.pre_tokenizers import RULES, pre_tokenizer

    found = list(map(_bare, components(backend.pre_tokenizer)))
    normalizers = [part["type"] for part in components(backend.normalizer)]
    for name, rule in RULES.items():
        same_cut = list(map(_bare, components(pre_tokenizer(rule)))) == found
        if (
            same_cut
            and rule.ignore_merges == bool(backend.model.ignore_merges)
            and normalizers == (["NFC"] if rule.normalizes else [])
        ):
            return name
    raise _unsaid("the way it normalizes and cuts text before it merges")


def _bare(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step without what has no effect on ids."""
    return {key: value for key, value in part.items() if key != "trim_offsets"}


def _has_space_prefix(backend: Any, model: Mapping[str, Any]) -> bool:
    prepend = {"type": "Prepend", "prepend": SPACE}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps = components(backend.normalizer)
    if backend.pre_tokenizer is not None or steps not in ([prepend, replace], [replace]):
        raise _unsaid("the way it writes spaces")
    if not model.get("byte_fallback") or not model.get("fuse_unk"):
        raise _unsaid("what it does with characters outside the vocabulary")
    return prepend in steps


def _scores(texts: list[str], merges: list[tuple[str, ...]]) -> list[float]:
    """Return a score for each piece: the earlier it is merged, the higher; the rest at the end."""
    ranks: dict[str, int] = {}
    for pair in merges:
        ranks.setdefault("".join(pair), len(ranks))
    return [-float(ranks.get(text, len(ranks))) for text in texts]


def _check_ranked_by_piece(merges: list[tuple[str, ...]]) -> None:
    done, current = set(), None
    for pair in merges:
        piece = "".join(pair)
        if piece != current:
            if piece in done:
                raise _unsaid("merges that are not in the order of the pieces they make")
            done.add(current := piece)


def _check_same(tokenizer: Tokenizer, keys: Mapping[str, Any]) -> None:
    """Read the keys as a file's, and compare what comes of it."""
    try:
        read = Tokenizer.from_gguf(keys)
    except InfernoError as error:
        raise _unsaid(f"({error.message})") from None
    for what, ours, theirs in _traits(tokenizer, read):
        if ours != theirs:
            raise _unsaid(f"its {what} (expected {shown(ours)}, found {shown(theirs)})")


def _traits(a: Tokenizer, b: Tokenizer) -> Iterator[tuple[str, Any, Any]]:
    yield "number of tokens", a.vocab_size, b.vocab_size
    yield "control tokens", dict(a.control_tokens), dict(b.control_tokens)
    yield "beginning of text", (a.bos_id, a.adds_bos), (b.bos_id, b.adds_bos)
    yield "invented space", a.space_prefix, b.space_prefix


def _unsaid(what: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"Tokenizer: GGUF has no words for {what}",
        hint="use the directory as it is: it can be quantized while it is loaded",
    )
