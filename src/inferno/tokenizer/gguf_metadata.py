"""The `tokenizer.ggml.*` keys of a GGUF file → Tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from inferno.config import end_of_turn_ids
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.tokenizer import SpacePrefix, Tokenizer
from inferno.tokenizer.merges import merges_by_score, parsed_merges
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

if TYPE_CHECKING:
    import tokenizers


def read_gguf_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
    """Read what `Tokenizer.from_gguf` reads."""
    import tokenizers

    keys = _Keys(metadata)
    model = keys.string("model")
    if model not in ("gpt2", "llama"):
        raise UnsupportedModel(
            f"Tokenizer model `{model[:64]}` is not supported (supported: gpt2, llama)"
        )
    texts = keys.strings("tokens")
    bos_id = keys.token_id("bos_token_id", len(texts))
    eos_id = keys.token_id("eos_token_id", len(texts))
    unknown_id = keys.token_id("unknown_token_id", len(texts))
    kinds = keys.numbers("token_type", len(texts)) or [
        CONTROL if id in (bos_id, eos_id, unknown_id) else NORMAL for id in range(len(texts))
    ]
    scores = keys.numbers("scores", len(texts)) if model == "llama" else []
    # Rows that only pad the embedding have names too; nobody must ever read or draw one.
    used = len(texts)
    while used and kinds[used - 1] == UNUSED and used - 1 not in (bos_id, eos_id, unknown_id):
        used -= 1
    texts, kinds = texts[:used], kinds[:used]
    # Of tokens spelled alike the first counts, but a control token always keeps its own id.
    vocab = {text: id for id, text in reversed(list(enumerate(texts)))} | {
        text: id
        for id, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        if kind == CONTROL
    }
    adds_bos = model == "llama"
    if model == "gpt2":
        from inferno.pre_tokenizers import pre_tokenizer, rule_for

        rule = rule_for(keys.string("pre", "default"))
        adds_bos = rule.adds_bos
        backend = _bpe(
            vocab, parsed_merges(keys.strings("merges")), ignore_merges=rule.ignore_merges
        )
        backend.pre_tokenizer = pre_tokenizer(rule)
        if rule.normalizes:
            backend.normalizer = tokenizers.normalizers.NFC()
        prefix, unprefixed = SpacePrefix.NEVER, None
    else:
        # Merges say more than scores, and few files of this kind have them: ours, where the
        # order among the pairs that make a piece matters (`gguf_vocabulary`).
        merges = (
            parsed_merges(keys.strings("merges"))
            if f"{keys.PREFIX}merges" in metadata
            else merges_by_score(texts, kinds, scores[: len(texts)])
        )
        options: dict[str, Any] = {"byte_fallback": True, "fuse_unk": True}
        if unknown_id is not None:
            options["unk_token"] = texts[unknown_id]
        backend = _bpe(vocab, merges, **options)
        spaces = tokenizers.normalizers.Replace(" ", SPACE)
        unprefixed = tokenizers.Tokenizer(backend.model)
        unprefixed.normalizer = backend.normalizer = spaces
        prefix = SpacePrefix.NEVER
        if keys.boolean("add_space_prefix", True):
            prefix = SpacePrefix.ALWAYS
            backend.normalizer = tokenizers.normalizers.Sequence(
                [tokenizers.normalizers.Prepend(SPACE), spaces]
            )
    backend.add_tokens(
        [
            tokenizers.AddedToken(text, normalized=False, special=kind != USER_DEFINED)
            for text, kind in zip(texts, kinds, strict=True)
            if kind in (UNKNOWN, CONTROL, USER_DEFINED) and text
        ]
    )
    ends = [
        eos_id,
        *(keys.token_id(name, len(texts)) for name in ("eot_token_id", "eom_token_id")),
    ]
    ends += end_of_turn_ids({t: id for t, id in vocab.items() if kinds[id] == CONTROL})
    return Tokenizer(
        backend,
        texts=dict(enumerate(texts)),
        byte_level=model == "gpt2",
        space_prefix=prefix,
        unprefixed=unprefixed,
        bos_id=bos_id,
        eos_ids=[id for id in ends if id is not None],
        unknown_id=unknown_id,
        adds_bos=keys.boolean("add_bos_token", adds_bos),
        byte_ids=frozenset(
            id
            for id, kind in enumerate(kinds)
            if kind == BYTE and model == "llama" and BYTE_PIECE.fullmatch(texts[id])
        ),
    )


def _bpe(
    vocab: dict[str, int], merges: list[tuple[str, str]], **options: Any
) -> tokenizers.Tokenizer:
    import tokenizers

    try:
        return tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges, **options))
    except Exception as error:  # the library raises bare Exception
        raise InvalidCheckpoint(
            f"`tokenizer.ggml.merges`: expected pairs of pieces in the vocabulary, "
            f"found {str(error)[:200]}"
        ) from None


class _Keys:
    """The `tokenizer.ggml.*` keys, checked: a file may hold anything under any name."""

    PREFIX = "tokenizer.ggml."

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    def _get(self, key: str) -> Any:
        return self._metadata.get(f"{self.PREFIX}{key}")

    def _wrong(self, key: str, expected: str, found: object) -> InvalidCheckpoint:
        return InvalidCheckpoint(
            f"`tokenizer.ggml.{key}`: expected {expected}, found {str(found)[:64]}"
        )

    def string(self, key: str, default: str | None = None) -> str:
        value = self._get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._wrong(key, "a string", "nothing" if value is None else repr(value))
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", repr(value))
        return value

    def strings(self, key: str) -> list[str]:
        value = self._get(key)
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise self._wrong(
                key, "an array of strings", "nothing" if value is None else type(value).__name__
            )
        wrong = next((item for item in value if not isinstance(item, str)), None)
        if wrong is not None:
            raise self._wrong(key, "an array of strings", f"{wrong!r} in it")
        for item in value:
            try:
                item.encode()
            except UnicodeEncodeError:
                raise self._wrong(key, "an array of strings", f"{item!r} in it") from None
        return list(value)

    def numbers(self, key: str, length: int) -> list[Any]:
        """Return an array of `length` numbers, or an empty list if there is none."""
        value = self._get(key)
        if value is None:
            return []
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
            raise self._wrong(key, "an array of numbers", type(value).__name__)
        if len(value) != length:
            raise self._wrong(key, f"{length:,} numbers, one per token", f"{len(value):,}")
        numbers = value.tolist() if hasattr(value, "tolist") else list(value)
        if not all(isinstance(number, (int, float)) for number in numbers):
            raise self._wrong(key, "an array of numbers", "something else in it")
        return cast("list[Any]", numbers)

    def token_id(self, key: str, vocab_size: int) -> int | None:
        value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
            raise self._wrong(key, f"an id from 0 to {vocab_size - 1:,}", repr(value))
        return value
