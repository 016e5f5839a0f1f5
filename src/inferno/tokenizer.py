"""Text to ids and ids to bytes, for byte-level and SentencePiece-like vocabularies.

The work is done by the `tokenizers` library; this room assembles its objects from a tokenizer.json
or from GGUF metadata, and adds what an engine needs: control tokens that text cannot forge, exact
bytes for every id, and a leading space that is invented and removed exactly once. Knows nothing of
models, messages or streams.
"""

from __future__ import annotations

import contextlib
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from inferno.config import end_of_turn_ids
from inferno.errors import InvalidCheckpoint, InvalidOption, InvalidText, UnsupportedModel
from inferno.excerpt import shown

if TYPE_CHECKING:
    import tokenizers

    from inferno.weights.checkpoint import Checkpoint

SPACE = "\u2581"  # how SentencePiece vocabularies write a space
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")

# `tokenizer.ggml.token_type`, as llama.cpp numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Deriving merges tries every cut of every piece. Real vocabularies cost under 10 million steps.
MAX_MERGE_WORK = 1_000_000_000


class SpacePrefix(Enum):
    """Where a vocabulary invents a space before text: nowhere, at the very start, or also after
    every added token, as SentencePiece models of the first generation do."""

    NEVER = "never"
    FIRST = "first"
    ALWAYS = "always"


def _byte_alphabet() -> dict[int, str]:
    """Return the printable character that stands for each byte in a byte-level vocabulary.

    Source: `bytes_to_unicode` of GPT-2's encoder: printable Latin-1 stands for itself, the rest
    is moved, in order, to U+0100 and up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + index) for index, byte in enumerate(moved)
    }


BYTE_TO_CHARACTER = _byte_alphabet()
CHARACTER_TO_BYTE = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}


def checked_text(text: str | bytes) -> str:
    """Return `text` as a string that has a UTF-8 encoding.

    Raises:
        InvalidText: bytes that are not UTF-8, a string with lone surrogates, or neither.
    """
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidText(
                f"Text: expected Unicode characters, found the lone surrogate "
                f"U+{ord(text[error.start]):04X} at position {error.start:,}"
            ) from None
        return text
    if isinstance(text, (bytes, bytearray)):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InvalidText(
                f"Text: expected UTF-8, found byte 0x{text[error.start]:02X} at {error.start:,} "
                f"({error.reason})"
            ) from None
    raise InvalidText(f"Text: expected a string, found {type(text).__name__}")


@contextlib.contextmanager
def _panics_explained() -> Iterator[None]:
    """Make a panic of the library, which is no Exception, an error of the file that provoked it."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the class is in no module to import
            raise
        raise InvalidCheckpoint(
            "Tokenizer: expected settings that the `tokenizers` library can work with, "
            f"found that it fails: {str(error)[:200]}",
            hint="the file is damaged, or was edited by hand",
        ) from None


class Tokenizer:
    """Encode text to ids and decode ids to text or bytes.

    `vocab_size` counts ids, holes included. `bos_id` and `eos_ids` are what the tokenizer itself
    declares; `adds_bos` says whether a raw prompt should start with BOS, which `encode` never adds.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        texts: Mapping[int, str],
        byte_level: bool,
        space_prefix: SpacePrefix,
        unprefixed: tokenizers.Tokenizer | None = None,
        bos_id: int | None,
        eos_ids: Iterable[int],
        unknown_id: int | None,
        adds_bos: bool,
        byte_ids: frozenset[int] = frozenset(),
    ) -> None:
        """Take over `backend`; `unprefixed` has the normalizer and pre-tokenizer that invent no
        space, `texts` spells every id as the vocabulary does, `byte_ids` are `<0xNN>` pieces."""
        added = _added_tokens(backend)
        self.vocab_size = max(texts, default=-1) + 1
        self.bos_id = bos_id
        self.eos_ids = tuple(dict.fromkeys(eos_ids))
        self.adds_bos = adds_bos and bos_id is not None
        self._texts = texts
        self._byte_level = byte_level
        self._byte_ids = byte_ids
        self._space_prefix = space_prefix
        self._added = frozenset(added)
        self._control = frozenset(id for id, token in added.items() if token.special)
        self._unknown_id = unknown_id
        self._containing: dict[str, frozenset[int]] = {}
        self._ids = {text: id for id, text in reversed(list(texts.items()))} | {
            token.content: id for id, token in added.items()
        }
        # The library always matches special tokens unless told otherwise, per object; the
        # vocabulary inside is shared, so an object more costs microseconds.
        self._encoders = {
            (special, prefixed): _encoder(backend, parts, added, special)
            for special in (False, True)
            for prefixed, parts in ((True, backend), (False, unprefixed or backend))
        }
        self._space_ids = self._literal_space_ids()

    @classmethod
    @_panics_explained()
    def from_file(
        cls, path: str | Path, tokenizer_config: Mapping[str, Any] | None = None
    ) -> Tokenizer:
        """Read a Hugging Face tokenizer.json, with the tokenizer_config.json beside it if any.

        Raises:
            InvalidCheckpoint: the file is missing or damaged, or contradicts its config.
            UnsupportedModel: a kind of vocabulary other than byte-level or SentencePiece-like.
        """
        import tokenizers

        path = Path(path)
        config = tokenizer_config or {}
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
        if model not in ("BPE", "Unigram") or not (
            byte_level or kinds & {"ByteFallback", "Metaspace"}
        ):
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
        known = {token.content for token in _added_tokens(backend).values() if token.special}
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
        control = {t.content: id for id, t in _added_tokens(backend).items() if t.special}
        adds_bos = config.get("add_bos_token")
        if not isinstance(adds_bos, bool):
            adds_bos = bos_id is not None and backend.encode("a").ids[:1] == [bos_id]
        texts = {id: text for text, id in sorted(vocab.items(), key=operator.itemgetter(1))}
        space_prefix, unprefixed = _space_prefix_of(backend)
        return cls(
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

    @classmethod
    @_panics_explained()
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Assemble the tokenizer that the `tokenizer.ggml.*` keys of a GGUF file describe.

        Raises:
            InvalidCheckpoint: keys are missing, of the wrong type, or contradict each other.
            UnsupportedModel: a tokenizer model or pre-tokenizer that is not known.
        """
        import tokenizers

        keys = _GgufKeys(metadata)
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
                vocab, _parsed_merges(keys.strings("merges")), ignore_merges=rule.ignore_merges
            )
            backend.pre_tokenizer = pre_tokenizer(rule)
            if rule.normalizes:
                backend.normalizer = tokenizers.normalizers.NFC()
            prefix, unprefixed = SpacePrefix.NEVER, None
        else:
            # Merges say more than scores, and few files of this kind have them: ours, where the
            # order among the pairs that make a piece matters (`gguf_vocabulary`).
            merges = (
                _parsed_merges(keys.strings("merges"))
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
        return cls(
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

    @property
    def space_prefix(self) -> SpacePrefix:
        """Where this vocabulary invents a space."""
        return self._space_prefix

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """The ids of control tokens by their text, in the order of ids."""
        return {self._texts[id]: id for id in sorted(self._control)}

    @_panics_explained()
    def encode(
        self, text: str | bytes, special: bool = False, *, previous: int | None = None
    ) -> list[int]:
        """Return the ids of `text`, without BOS.

        With `special=False`, text that looks like a control token stays plain text. `previous` is
        the id that `text` follows, if any; it decides whether a leading space is invented.

        Raises:
            InvalidText: `text` has no UTF-8 encoding.
        """
        text = checked_text(text)
        return self._encode(text, special, self.invents_space(previous))

    @_panics_explained()
    def encode_disguised(self, text: str, stand_ins: Mapping[str, str]) -> list[int]:
        """Return the ids of `text`, where control tokens match only what is not disguised.

        `stand_ins` maps a replacement to what it stands for; each one is undone before the text
        between control tokens is encoded, so nothing else of the result depends on them.
        """
        encoding = self._encoders[True, True].encode(text, add_special_tokens=False)
        ids: list[int] = []
        position = 0

        def encode_until(end: int) -> None:
            stretch = text[position:end]
            for stand_in, original in stand_ins.items():
                stretch = stretch.replace(stand_in, original)
            at_start = position == 0 or self._space_prefix is SpacePrefix.ALWAYS
            ids.extend(self._encode(stretch, False, at_start))

        for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if id in self._control and text[start:end].strip() == self._texts[id].strip():
                encode_until(start)
                ids.append(id)
                position = end
        encode_until(len(text))
        return ids

    def decode(
        self, ids: Iterable[int], *, special: bool = False, previous: int | None = None
    ) -> str:
        """Return the text of `ids`; control tokens are left out unless `special`.

        Bytes that are not UTF-8 become U+FFFD. `previous` is the id before the first.

        Raises:
            InvalidOption: an id is outside the vocabulary.
        """
        pieces = []
        for id in ids:
            pieces.append(self.piece(id, previous=previous, special=special))
            previous = id
        return b"".join(pieces).decode("utf-8", "replace")

    def piece(self, id: int, *, previous: int | None = None, special: bool = False) -> bytes:
        """Return the bytes that `id` adds to a text whose last token is `previous`.

        They are those of `token_bytes`, less the space that `encode` invents there.

        Raises:
            InvalidOption: `id` is outside the vocabulary.
        """
        text = self.token_bytes(id)
        if special and id in self._control:
            return self._texts[id].encode()
        if text.startswith(b" ") and id not in self._added and self.invents_space(previous):
            return text[1:]
        return text

    def ids_containing(self, text: str) -> frozenset[int]:
        """Return the ids whose own text contains `text`."""
        found = self._containing.get(text)
        if found is None:
            wanted = text.encode()
            found = frozenset(id for id in self._texts if wanted in self.token_bytes(id))
            self._containing[text] = found
        return found

    def token_bytes(self, id: int) -> bytes:
        """Return the exact bytes that `id` stands for: none for control tokens.

        Raises:
            InvalidOption: `id` is outside the vocabulary.
        """
        text = self.token_text(id)
        if id in self._control:
            return b""
        if id in self._added:
            return text.encode()
        if self._byte_level:
            try:
                return bytes([CHARACTER_TO_BYTE[character] for character in text])
            except KeyError:  # a mislabelled added token, spelled as it is
                return text.encode()
        if id in self._byte_ids:
            return bytes([int(text[3:5], 16)])
        return text.replace(SPACE, " ").encode()

    def token_text(self, id: int) -> str:
        """Return `id` as the vocabulary spells it: spaces as U+2581 or U+0120, for instance.

        Raises:
            InvalidOption: `id` is outside the vocabulary.
        """
        try:
            index = operator.index(id)
        except TypeError:
            index = -1
        if not 0 <= index < self.vocab_size:
            raise InvalidOption(
                f"Token id: expected an integer from 0 to {self.vocab_size - 1}, found {shown(id)}"
            )
        return self._texts.get(index, "")

    def token_id(self, text: str) -> int | None:
        """Return the id that the vocabulary spells `text`, or None."""
        return self._ids.get(text)

    def is_control(self, id: int) -> bool:
        """Tell whether `id` steers the model and stands for no text."""
        return id in self._control

    def invents_space(self, previous: int | None) -> bool:
        """Tell whether text after `previous` begins with an invented space."""
        if self._space_prefix is SpacePrefix.ALWAYS:
            return previous is None or previous in self._added
        if self._space_prefix is SpacePrefix.FIRST:
            return previous is None or previous == self.bos_id
        return False

    def _encode(self, text: str, special: bool, at_start: bool) -> list[int]:
        if not self._space_ids or SPACE not in text:
            return self._encode_plain(text, special, at_start)
        # The vocabulary writes a space as U+2581, so that character itself has to go as bytes.
        head, *rest = text.split(SPACE)
        ids = self._encode_plain(head, special, at_start)
        for part in rest:
            ids += self._space_ids + self._encode_plain(part, special, False)
        return ids

    def _encode_plain(self, text: str, special: bool, at_start: bool) -> list[int]:
        encoding = self._encoders[special, at_start].encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._space_prefix is SpacePrefix.ALWAYS and not at_start:
            # Only the text before the first added token goes without its space.
            added = next((i for i, id in enumerate(ids) if id in self._added), None)
            if added is not None:
                start = encoding.offsets[added][0]
                rest = self._encoders[special, True].encode(text[start:], add_special_tokens=False)
                head = self._encoders[special, False].encode(text[:start], add_special_tokens=False)
                ids = head.ids + rest.ids
        if not special and not self._control.isdisjoint(ids):
            ids = [part for id in ids for part in self._spelled(id)]
        return ids

    def _spelled(self, id: int) -> list[int]:
        """Return `id`, or for a control token that the merges built from text, its bytes' ids.

        Vocabularies can be made (or broken) so that merging plain text ends in a control token.
        """
        if id not in self._control or id == self._unknown_id:
            return [id]
        return self._ids_of_bytes(self._texts[id].encode())

    def _ids_of_bytes(self, text: bytes) -> list[int]:
        spellings = (
            (BYTE_TO_CHARACTER[byte] if self._byte_level else f"<0x{byte:02X}>") for byte in text
        )
        return [self._ids[spelling] for spelling in spellings if spelling in self._ids]

    def _literal_space_ids(self) -> list[int]:
        """Return the byte ids of U+2581, or none where that character needs no care."""
        if self._byte_level or any(SPACE in self._texts[id] for id in self._added):
            return []
        ids = self._ids_of_bytes(SPACE.encode())
        return ids if len(ids) == 3 else []


def tokenizer_for(checkpoint: Checkpoint) -> Tokenizer:
    """Build the tokenizer of an opened checkpoint.

    Raises:
        InvalidCheckpoint, UnsupportedModel: as `Tokenizer.from_file` and `Tokenizer.from_gguf`.
    """
    source = checkpoint.tokenizer_source
    if isinstance(source, Mapping):
        return Tokenizer.from_gguf(source)
    return Tokenizer.from_file(source.path, source.config)


def _encoder(
    backend: tokenizers.Tokenizer,
    parts: tokenizers.Tokenizer,
    added: Mapping[int, tokenizers.AddedToken],
    special: bool,
) -> tokenizers.Tokenizer:
    """Return an encoder that shares the model of `backend` and has the steps of `parts`.

    Built afresh, it has no post-processor, truncation or padding that a file may ask for.
    """
    import tokenizers

    encoder = tokenizers.Tokenizer(backend.model)
    if parts.normalizer is not None:
        encoder.normalizer = parts.normalizer
    if parts.pre_tokenizer is not None:
        encoder.pre_tokenizer = parts.pre_tokenizer
    encoder.add_tokens(list(added.values()))
    for id, token in added.items():
        if encoder.token_to_id(token.content) != id:
            raise InvalidCheckpoint(
                f"Added token `{token.content[:64]}`: expected id {id}, "
                f"found {encoder.token_to_id(token.content)}",
                hint="the ids of added tokens must follow the vocabulary without holes",
            )
    encoder.encode_special_tokens = not special
    return encoder


def _added_tokens(backend: tokenizers.Tokenizer) -> dict[int, tokenizers.AddedToken]:
    """Return the added tokens of `backend` in the order of ids.

    Control tokens match text as it is written: no normalizer can forge one.
    """
    import tokenizers

    return {
        id: tokenizers.AddedToken(
            token.content,
            single_word=token.single_word,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            normalized=token.normalized and not token.special,
            special=token.special,
        )
        for id, token in sorted(backend.get_added_tokens_decoder().items())
    }


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


def _parsed_merges(lines: Sequence[str]) -> list[tuple[str, str]]:
    merges = []
    for line in lines:
        left, space, right = line.partition(" ")
        if not space or not left or not right or " " in right:
            raise InvalidCheckpoint(
                f"`tokenizer.ggml.merges`: expected two pieces and a space, found {line[:64]!r}"
            )
        merges.append((left, right))
    return merges


def merges_by_score(
    texts: Sequence[str], kinds: Sequence[int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Return the merges that a SentencePiece BPE vocabulary implies, best first.

    SentencePiece joins the neighbours whose union has the highest score; ranking every cut of
    every piece by the score of the whole does the same. Only normal pieces take part: text must
    not merge into a control token or a `<0xNN>` piece. Source: transformers' `generate_merges`.
    """
    if not scores:
        raise InvalidCheckpoint("`tokenizer.ggml.scores` is missing: a llama tokenizer needs them")
    pieces = {
        text: score
        for text, kind, score in zip(texts, kinds, scores, strict=True)
        if kind == NORMAL
    }
    if sum(len(text) ** 2 for text in pieces) > MAX_MERGE_WORK:
        raise InvalidCheckpoint(
            f"`tokenizer.ggml.tokens`: expected pieces of ordinary length, found one of "
            f"{max(map(len, pieces)):,} characters"
        )
    ranked = [
        (-score, -cut, text[:cut], text[cut:])
        for text, score in pieces.items()
        for cut in range(1, len(text))
        if text[:cut] in pieces and text[cut:] in pieces
    ]
    ranked.sort(key=lambda entry: entry[:2])
    return [(left, right) for _, _, left, right in ranked]


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


class _GgufKeys:
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
