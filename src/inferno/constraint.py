"""What a text may say next: a JSON schema, a regular expression or a grammar as a mask of tokens.

The work is done by the `llguidance` library; this room gives it the vocabulary as the text stream
will read it, refuses what it would ignore, and keeps the masks one pass ahead. Knows bytes and ids;
no model and no logits.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inferno import json_schema
from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.expression import MAX_ATOMS, atoms
from inferno.grammar import as_lark, lark_atoms
from inferno.options import SamplingParams
from inferno.tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance

Words = npt.NDArray[np.uint32]  # a bit a token, lowest first

KINDS = ("json_schema", "regex", "grammar")
CACHED = 32  # compiled constraints an engine keeps
# Why a matcher stops if nothing is wrong: no byte can follow.
NO_MORE = ("NoExtension", "NoExtensionBias")
# Stands for "some token of text" where a tokenizer asks what came before.
_SOME_TEXT = -1


@dataclass(frozen=True)
class Source:
    """A constraint as the caller wrote it."""

    kind: str  # one of KINDS
    text: str

    @classmethod
    def of(cls, params: SamplingParams) -> Source | None:
        """Return the constraint that `params` ask for, if any."""
        for kind in KINDS:
            text = getattr(params, kind)
            if text is not None:
                return cls(kind, text)
        return None

    def compiled(self) -> str:
        """Return the grammar in the words of llguidance.

        Raises:
            InvalidOption: it cannot be enforced.
        """
        from llguidance import LLMatcher

        if self.kind == "json_schema":
            return _schema_grammar(json_schema.wrapped(json.loads(self.text)))
        is_regex = self.kind == "regex"
        text = self.text if is_regex else as_lark(self.text)
        length = atoms(text) if is_regex else lark_atoms(text)
        if length > MAX_ATOMS:
            raise InvalidOption(
                f"`{self.kind}`: expected at most {MAX_ATOMS:,} characters when repetitions are "
                f"written out, found {length:,}"
            )
        return LLMatcher.grammar_from_regex(text) if is_regex else LLMatcher.grammar_from_lark(text)

    def refusal(self, message: str) -> InvalidOption:
        """Return the error that says why llguidance refuses it, and where."""
        reason = shown(_gist(message))[1:-1]
        if self.kind == "json_schema":
            pointer = json_schema.offender(self.text, _schema_refusal)
            place = shown(pointer)[1:-1] if pointer else "the schema"
            return InvalidOption(
                f"`json_schema`: {place}: this cannot be enforced ({reason})",
                hint="leave it out, and check the reply yourself",
            )
        return InvalidOption(
            f"`{self.kind}`: expected one that can be enforced, found {shown(self.text)} ({reason})"
        )


def check(params: SamplingParams) -> None:
    """Refuse a constraint that no vocabulary could be held to.

    Raises:
        InvalidOption: it cannot be enforced.
    """
    from llguidance import LLMatcher

    source = Source.of(params)
    if source is not None:
        is_error, messages = LLMatcher.validate_grammar_with_warnings(
            source.compiled(), limits=_limits()
        )
        if is_error:
            raise source.refusal(messages[0])


class Constraints:
    """The constraints of one engine: compiled once each, and kept while they are in use."""

    def __init__(self, tokenizer: Tokenizer, num_tokens: int, stop_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._num_tokens = num_tokens
        self._stop_ids = [id for id in stop_ids if id < num_tokens]
        self._lock = threading.Lock()
        # By whether the first space of a text is dropped.
        self._vocabularies: dict[bool, llguidance.LLTokenizer] = {}
        self._matchers: OrderedDict[tuple[Source, bool], llguidance.LLMatcher] = OrderedDict()
        self._worker: ThreadPoolExecutor | None = None
        self._text_bits: dict[bool, Words] = {}

    def constraint(
        self,
        source: Source,
        *,
        previous: int | None,
        ignore_eos: bool,
        visible: Collection[int] = (),
    ) -> Constraint:
        """Return the constraint of a new text, which follows the token `previous`.

        `visible` are the control tokens that may come where a grammar names them.

        Raises:
            InvalidOption: it cannot be enforced, or no text of this vocabulary satisfies it.
        """
        drops_space = self._tokenizer.invents_space(previous)
        matcher = self._matcher(source, False)
        first = self._matcher(source, True) if drops_space else None
        with self._lock:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="inferno-constraint")
            bits = self._bits_of_text(ignore_eos)
        if visible:
            bits = bits.copy()
            for id in filter(range(self._num_tokens).__contains__, visible):
                bits[id // 32] |= np.uint32(1 << id % 32)
        ends = [] if ignore_eos else self._stop_ids
        return Constraint(
            source,
            matcher.deep_copy(),
            None if first is None else first.deep_copy(),
            _Vocabulary(self._tokenizer, self._vocabularies[False], self._num_tokens, bits, ends),
            self._worker,
            previous,
        )

    def compile(self, source: Source) -> None:
        """Compile it now, so that a mistake is told now. Raises InvalidOption."""
        self._matcher(source, False)

    def _matcher(self, source: Source, drops_space: bool) -> llguidance.LLMatcher:
        key = source, drops_space
        with self._lock:
            if key in self._matchers:
                self._matchers.move_to_end(key)
                return self._matchers[key]
            vocabulary = self._vocabulary(drops_space)
        # Without the lock: it may take a second, and texts that others write go on meanwhile.
        matcher = self._compiled(source, vocabulary)
        with self._lock:
            self._matchers[key] = matcher
            if len(self._matchers) > CACHED:
                self._matchers.popitem(last=False)
        return matcher

    def _compiled(self, source: Source, vocabulary: llguidance.LLTokenizer) -> llguidance.LLMatcher:
        from llguidance import LLMatcher

        matcher = LLMatcher(vocabulary, source.compiled(), log_level=0, limits=_limits())
        warnings = [] if matcher.is_error() else matcher.get_grammar_warnings()
        if warnings or (matcher.is_error() and not _is_at_an_end(matcher)):
            raise source.refusal(matcher.get_error() or warnings[0])
        matcher.compute_bitmask()  # only now the library notices that there is no first token
        if matcher.is_stopped() and not matcher.is_accepting():
            if matcher.is_error() and not _is_at_an_end(matcher):
                raise source.refusal(matcher.get_error())
            raise InvalidOption(
                f"`{source.kind}`: expected one that some text satisfies, found that none does: "
                f"{shown(source.text)}"
            )
        return matcher

    def _vocabulary(self, drops_space: bool) -> llguidance.LLTokenizer:
        """Return the tokens as bytes of text; control tokens have none, and never come.

        The end of text is an id of its own, after all others: which ids end a text is not the
        library's to know.
        """
        if drops_space not in self._vocabularies:
            import llguidance

            tokenizer, end = self._tokenizer, self._num_tokens
            previous = None if drops_space else _SOME_TEXT
            pieces = [tokenizer.piece(id, previous=previous) for id in range(end)]
            self._vocabularies[drops_space] = llguidance.LLTokenizer(
                llguidance.TokenizerWrapper(_Pieces(tokenizer, [*pieces, b"\xff<end>"])),
                n_vocab=end + 1,
                eos_token=end,
            )
        return self._vocabularies[drops_space]

    def _bits_of_text(self, ignore_eos: bool) -> Words:
        """Return which tokens are text, and nothing but text."""
        if ignore_eos not in self._text_bits:
            tokenizer = self._tokenizer
            ids = np.zeros(_words(self._num_tokens) * 32, dtype=np.bool_)
            # After some added tokens the space of the next is dropped: their text is spelled by
            # others.
            ids[: self._num_tokens] = [
                not tokenizer.is_control(id) and not tokenizer.invents_space(id)
                for id in range(self._num_tokens)
            ]
            if not ignore_eos:
                ids[self._stop_ids] = False
            self._text_bits[ignore_eos] = np.packbits(ids, bitorder="little").view(np.uint32)
        return self._text_bits[ignore_eos]


@dataclass(frozen=True)
class _Vocabulary:
    """What a constraint has to know of the tokens."""

    tokenizer: Tokenizer
    library: llguidance.LLTokenizer
    num_tokens: int
    text: Words  # the bits of tokens that are text
    ends: Sequence[int]  # the ids that end a text


@dataclass(frozen=True)
class Mask:
    """The tokens that may come next. Without any, the text is at its end, or nowhere."""

    words: Words
    may_end: bool
    has_tokens: bool


class Constraint:
    """Where one text stands in its grammar. Follows the text token by token.

    `look_ahead` computes the next masks in a thread while the caller does something else.
    """

    def __init__(
        self,
        source: Source,
        matcher: llguidance.LLMatcher,
        first: llguidance.LLMatcher | None,
        vocabulary: _Vocabulary,
        worker: ThreadPoolExecutor,
        previous: int | None,
    ) -> None:
        self._source = source
        self._matcher = matcher
        self._first = first  # in charge of the first token, if that loses its space
        self._vocabulary = vocabulary
        self._worker = worker
        self._previous = previous
        self._ahead: Future[list[Mask]] | None = None
        # The masks of the next tokens, if `_draft` is what comes.
        self._masks: list[Mask] = []
        self._draft: list[int] = []

    def mask(self) -> Mask:
        """Return which tokens may come next.

        Raises:
            InvalidOption: none may, and the text is not at an end; or the grammar is too complex.
        """
        self._settle()
        if not self._masks:
            self._masks = self._masks_along((), None)
        mask = self._masks[0]
        if not mask.has_tokens and not mask.may_end:
            raise self._dead_end()
        return mask

    @property
    def is_complete(self) -> bool:
        """Whether the text is whole and nothing can follow."""
        self._settle()
        return self._first is None and self._matcher.is_stopped() and self._matcher.is_accepting()

    def accept(self, token: int) -> None:
        """Follow the text by `token`, which the mask allowed."""
        self._settle()
        if self._first is not None:
            self._first = None
            self._consume(self._spelled(token))
        else:
            self._consume([token])
        if self._draft and self._draft[0] == token and len(self._masks) > 1:
            del self._draft[0], self._masks[0]
        else:
            self._draft, self._masks = [], []

    def forced(self) -> list[int]:
        """Return the tokens that most likely follow, because no other text can."""
        self._settle()
        # Asked of a copy: a guess that is too hard to make must not end the text.
        return [] if self._first is not None else self._matcher.deep_copy().compute_ff_tokens()

    def possible(self, draft: Sequence[int]) -> list[int]:
        """Return `draft` up to the first token that may not come."""
        self._settle()
        if self._first is not None or not draft:
            return []
        end = self._vocabulary.num_tokens
        within = next((i for i, id in enumerate(draft) if id >= end), len(draft))
        return list(draft[: self._matcher.deep_copy().validate_tokens(list(draft[:within]))])

    def look_ahead(self, draft: Sequence[int] = ()) -> None:
        """Begin to compute the next mask, and those after each of `draft`."""
        self._settle()
        known = self._masks[0] if self._masks else None
        if known is None or draft:
            self._draft = list(draft)
            self._ahead = self._worker.submit(self._masks_along, tuple(draft), known)

    def _settle(self) -> None:
        """Wait for what runs ahead: the matcher belongs to one thread at a time."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._masks = ahead.result()

    def _masks_along(self, draft: Sequence[int], known: Mask | None) -> list[Mask]:
        """Return the mask of the next token, if not `known`, and those after each of `draft`.

        Guesses are followed by a copy, so that nothing of the text depends on them.
        """
        masks = [known or self._computed(self._first or self._matcher)]
        guessed = self._matcher.deep_copy() if draft else self._matcher
        for id in draft:
            if not _has_bit(masks[-1].words, id) or id in self._vocabulary.ends:
                break
            if not guessed.consume_token(id):
                break
            try:
                masks.append(self._computed(guessed))
            except InvalidOption:  # told when the text gets there
                break
        return masks

    def _computed(self, matcher: llguidance.LLMatcher) -> Mask:
        v = self._vocabulary
        words: Words = np.zeros(_words(v.num_tokens + 1), dtype=np.uint32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():
            if not _is_at_an_end(matcher):
                raise self._failure(matcher)
            words[:] = 0
        may_end = matcher.is_accepting()
        words = words[: len(v.text)] & v.text
        has_tokens = bool(words.any())
        if may_end:
            for id in v.ends:
                words[id // 32] |= np.uint32(1 << id % 32)
        return Mask(words, may_end, has_tokens)

    def _consume(self, tokens: list[int]) -> None:
        if not self._matcher.consume_tokens(tokens):
            raise self._failure(self._matcher)

    def _dead_end(self) -> InvalidOption:
        return InvalidOption(
            f"`{self._source.kind}`: no token of this vocabulary continues the text, which is "
            "not at an end"
        )

    def _failure(self, matcher: llguidance.LLMatcher) -> InvalidOption:
        if _is_at_an_end(matcher):
            return self._dead_end()
        return InvalidOption(
            f"`{self._source.kind}`: the text cannot go on ({_gist(matcher.get_error())})",
            hint="a simpler one may be within the limits",
        )

    def _spelled(self, token: int) -> list[int]:
        """Return tokens that spell the text of the first token, which has lost its space."""
        v = self._vocabulary
        piece = v.tokenizer.piece(token, previous=self._previous)
        if piece == v.tokenizer.token_bytes(token):
            return [token]
        found = v.library.greedy_tokenize(piece.decode("utf-8", "replace"))
        if v.library.decode_bytes(found) != piece:
            raise InvalidOption(
                f"`{self._source.kind}`: this vocabulary has no other tokens for {shown(piece)}"
            )
        return found


class _Pieces:
    """The vocabulary as llguidance asks for it."""

    bos_token_id = None
    special_token_ids: Sequence[int]

    def __init__(self, tokenizer: Tokenizer, tokens: list[bytes]) -> None:
        self._tokenizer = tokenizer
        self.tokens = tokens
        self.eos_token_id = len(tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: bytes) -> list[int]:
        ids = self._tokenizer.encode(text, previous=_SOME_TEXT)
        return [id for id in ids if id < self.eos_token_id]


def _is_at_an_end(matcher: llguidance.LLMatcher) -> bool:
    """Tell whether the matcher stopped because no byte can follow, and not for what is wrong."""
    return matcher.stop_reason() in NO_MORE or _gist(matcher.get_error()) in NO_MORE


def _words(bits: int) -> int:
    return (bits + 31) // 32


def _has_bit(words: Words, id: int) -> bool:
    return id // 32 < len(words) and bool(int(words[id // 32]) >> id % 32 & 1)


def _limits() -> llguidance.LLParserLimits:
    from llguidance import LLParserLimits

    # The defaults but for the items of a step, of which 20,000 take a millisecond: grammars whose
    # every character is an expression have many.
    return LLParserLimits(step_max_items=200_000, verbose_errors=False)


def _schema_grammar(text: str) -> str:
    from llguidance import LLMatcher

    overrides: Any = json_schema.SPELLING
    return LLMatcher.grammar_from_json_schema(text, overrides=overrides)


def _schema_refusal(text: str) -> str:
    from llguidance import LLMatcher

    is_error, messages = LLMatcher.validate_grammar_with_warnings(
        _schema_grammar(text), limits=_limits()
    )
    return messages[0] if is_error or messages else ""


def _gist(message: str) -> str:
    """Return the line of a library's message that says what is wrong."""
    if "coerce_one_of" in message:
        return "its alternatives do not visibly exclude each other; anyOf may do"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("error: ")] or lines[:1] or [""]
    return re.sub(r"^(error|at \d+\(\d+\)|\d+\(\d+\)): ", "", telling[0])
