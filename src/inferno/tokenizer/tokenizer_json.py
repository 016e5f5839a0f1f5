"""tokenizer.json, and the tokenizer_config.json beside it → Tokenizer."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferno.config import end_of_turn_ids
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.excerpt import shown
from inferno.tokenizer import SpacePrefix, Tokenizer, added_tokens
from inferno.tokenizer.vocabulary import BYTE_PIECE, SPACE

if TYPE_CHECKING:
    import tokenizers


def read_tokenizer_json(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Read what `Tokenizer.from_file` reads."""
    import tokenizers

    if not path.is_file():
        raise InvalidCheckpoint(
            f"`{path}` is missing: expected the tokenizer of this model",
            hint="a directory with only tokenizer.model needs converting to tokenizer.json",
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise InvalidCheckpoint(
            f"`{path.name}`: expected a tokenizer of the `tokenizers` library, "
            f"found {str(error)[:200]}"
        ) from None
    model = type(backend.model).__name__
    parts = [*components(backend.pre_tokenizer), *components(backend.decoder)]
    kinds = {part.get("type") for part in parts}
    byte_level = "ByteLevel" in kinds
    if model not in ("BPE", "Unigram") or not (byte_level or kinds & {"ByteFallback", "Metaspace"}):
        raise UnsupportedModel(
            f"Tokenizer of type {model} is not supported (supported: byte-level BPE, "
            f"SentencePiece-like BPE and Unigram)"
        )
    if isinstance(backend.model, tokenizers.models.BPE):
        backend.model.dropout = None  # a training aid: ids must not be random
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if getattr(backend.model, key):
                raise UnsupportedModel(
                    f"`{key}` in `{path.name}`: marks inside or at the end of words are not "
                    f"supported, found {shown(getattr(backend.model, key))}"
                )
    vocab = backend.get_vocab(with_added_tokens=True)
    special = _special_texts(config)
    known = {token.content for token in added_tokens(backend).values() if token.special}
    backend.add_special_tokens(
        [
            tokenizers.AddedToken(text, normalized=False, special=True)
            for text in special.values()
            if text in vocab and text not in known
        ]
    )
    bos_id, eos_id, unknown_id = (
        vocab.get(special.get(name, "")) for name in ("bos_token", "eos_token", "unk_token")
    )
    control = {t.content: id for id, t in added_tokens(backend).items() if t.special}
    adds_bos = config.get("add_bos_token")
    if not isinstance(adds_bos, bool):
        adds_bos = bos_id is not None and backend.encode("a").ids[:1] == [bos_id]
    texts = {id: text for text, id in sorted(vocab.items(), key=operator.itemgetter(1))}
    space_prefix, unprefixed = _space_prefix_of(backend)
    return Tokenizer(
        backend,
        texts=texts,
        byte_level=byte_level,
        space_prefix=space_prefix,
        unprefixed=unprefixed,
        bos_id=bos_id,
        eos_ids=[*([] if eos_id is None else [eos_id]), *end_of_turn_ids(control)],
        unknown_id=unknown_id,
        adds_bos=adds_bos,
        byte_ids=frozenset()
        if byte_level
        else frozenset(id for id, text in texts.items() if BYTE_PIECE.fullmatch(text)),
    )


def components(part: Any) -> list[dict[str, Any]]:
    """Return the JSON of a normalizer, pre-tokenizer or decoder, sequences laid flat."""
    if part is None:
        return []
    pending, flat = [json.loads(part.__getstate__())], []
    while pending:
        entry = pending.pop(0)
        nested = [
            item
            for key in ("normalizers", "pretokenizers", "decoders")
            for item in entry.get(key, ())
        ]
        if nested:
            pending = nested + pending
        elif entry.get("type") != "Sequence":
            flat.append(entry)
    return flat


def _space_prefix_of(
    backend: tokenizers.Tokenizer,
) -> tuple[SpacePrefix, tokenizers.Tokenizer | None]:
    """Return where `backend` invents a space, and the same steps without the inventing."""
    import tokenizers

    normalizers = components(backend.normalizer)
    pre_tokenizers = components(backend.pre_tokenizer)
    found = SpacePrefix.NEVER
    if any(step["type"] == "Prepend" and step["prepend"] == SPACE for step in normalizers):
        found = SpacePrefix.ALWAYS
        normalizers = [step for step in normalizers if step["type"] != "Prepend"]
    for step in pre_tokenizers:
        if step["type"] == "Metaspace" and step["prepend_scheme"] != "never":
            found = SpacePrefix(step["prepend_scheme"])
            step["prepend_scheme"] = "never"
    if found is SpacePrefix.NEVER:
        return found, None
    return found, tokenizers.Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "model": {"type": "BPE", "vocab": {}, "merges": []},
                "normalizer": {"type": "Sequence", "normalizers": normalizers}
                if normalizers
                else None,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers}
                if pre_tokenizers
                else None,
            }
        )
    )


def _special_texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that a tokenizer_config.json names: its key to the token's text."""
    named = {
        key: value
        for key, value in config.items()
        if key in ("bos_token", "eos_token", "unk_token", "pad_token")
    }
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = config.get(key)
        values = extra.values() if isinstance(extra, Mapping) else extra
        if isinstance(extra, (list, Mapping)) and values is not None:
            named |= {f"{key}[{index}]": value for index, value in enumerate(values)}
    texts = {
        key: value.get("content") if isinstance(value, Mapping) else value
        for key, value in named.items()
    }
    return {key: text for key, text in texts.items() if isinstance(text, str) and text}
