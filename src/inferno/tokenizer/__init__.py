"""Text to ids and ids to bytes, for byte-level and SentencePiece-like vocabularies.

The work is done by the `tokenizers` library; this room assembles its objects from a tokenizer.json
or from GGUF metadata, and adds what an engine needs: control tokens that text cannot forge, exact
bytes for every id, and a leading space that is invented and removed exactly once. Knows nothing of
models, messages or streams.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferno.errors import InvalidCheckpoint, InvalidOption, InvalidText
from inferno.excerpt import shown
from inferno.tokenizer.stretches import Stretches
from inferno.tokenizer.vocabulary import BYTE_TO_CHARACTER, CHARACTER_TO_BYTE, SPACE

if TYPE_CHECKING:
    import tokenizers

    from inferno.weights.checkpoint import Checkpoint


class SpacePrefix(Enum):
    """Where a vocabulary invents a space before text: nowhere, at the very start, or also after
    every added token, as SentencePiece models of the first generation do."""

    NEVER = "never"
    FIRST = "first"
    ALWAYS = "always"


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
        added = added_tokens(backend)
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
        self._stretches = Stretches(added.values())
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
        from inferno.tokenizer.tokenizer_json import (
            read_tokenizer_json,  # late: it makes a Tokenizer
        )

        return read_tokenizer_json(Path(path), tokenizer_config or {})

    @classmethod
    @_panics_explained()
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Assemble the tokenizer that the `tokenizer.ggml.*` keys of a GGUF file describe.

        Raises:
            InvalidCheckpoint: keys are missing, of the wrong type, or contradict each other.
            UnsupportedModel: a tokenizer model or pre-tokenizer that is not known.
        """
        from inferno.tokenizer.gguf_metadata import read_gguf_metadata  # late, as above

        return read_gguf_metadata(metadata)

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
        at_start = self.invents_space(previous)
        if not special or not self._stretches.can_cut:
            return self._encode(text, special, at_start)
        return self._encode_cut(text, at_start, lambda stretch: stretch, special=True)

    @_panics_explained()
    def encode_disguised(self, text: str, stand_ins: Mapping[str, str]) -> list[int]:
        """Return the ids of `text`, where control tokens match only what is not disguised.

        `stand_ins` maps a replacement to what it stands for; each one is undone before the text
        between control tokens is encoded, so nothing else of the result depends on them.
        """

        def plain(stretch: str) -> str:
            for stand_in, original in stand_ins.items():
                stretch = stretch.replace(stand_in, original)
            return stretch

        if self._stretches.can_cut:
            return self._encode_cut(text, True, plain, special=False)
        encoding = self._encoders[True, True].encode(text, add_special_tokens=False)
        ids: list[int] = []
        position = 0

        def encode_until(end: int) -> None:
            at_start = position == 0 or self._space_prefix is SpacePrefix.ALWAYS
            ids.extend(self._encode(plain(text[position:end]), False, at_start))

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

    def _encode_cut(
        self, text: str, at_start: bool, plain: Callable[[str], str], *, special: bool
    ) -> list[int]:
        """Encode the texts between control tokens one by one, `plain` ones of them."""
        ids: list[int] = []
        for stretch, control in self._stretches.cut(text):
            if stretch:
                ids += self._stretches.ids(plain(stretch), special, at_start, self._encode)
            if control:
                ids.append(self._ids[control])
            at_start = self._space_prefix is SpacePrefix.ALWAYS
        return ids

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


def added_tokens(backend: tokenizers.Tokenizer) -> dict[int, tokenizers.AddedToken]:
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
