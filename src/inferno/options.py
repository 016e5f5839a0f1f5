"""What a caller may ask for: frozen, checked on construction, unknown keys refused.

Knows nothing of models, tokens or threads. The command line and the server derive their flags and
fields from these dataclasses.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inferno import json_schema
from inferno.errors import InvalidOption
from inferno.excerpt import shown

MAX_SEED = 2**64 - 1
MAX_LOGPROBS = 20  # OpenAI's limit for `top_logprobs`
SPECULATION_MODES = ("auto", "off")
MAX_GUESSES = 16  # rows of one pass beyond the first; more cost as much as they save
MAX_CONSTRAINT = json_schema.MAX_LENGTH  # characters of a regular expression or grammar
_MAX_INT = 2**31 - 1


def _number(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidOption(f"`{name}`: expected a number, found {shown(value)}")
    # Comparisons hold for integers that no float can hold, and are false for NaN.
    if not low <= value <= high or (open_low and value == low):
        opening = "(" if open_low else "["
        raise InvalidOption(
            f"`{name}`: expected a number in {opening}{low:g}, {high:g}], found {shown(value)}"
        )
    return float(value)


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"`{name}`: expected an integer, found {shown(value)}")
    if not low <= value <= high:
        raise InvalidOption(
            f"`{name}`: expected an integer from {low} to {high}, found {shown(value)}"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to choose the next token, and when to stop.

    Frozen, and checked when it is made. The fields act in the order of the guide
    (docs/guides/use-it-from-python.md). At most one of `json_schema`, `regex` and `grammar` may be
    given; what of them cannot be enforced is an error. Lists are taken for tuples.

    Attributes:
        temperature: divides the logits, 0 to 100; 0 takes the likeliest token (greedy).
        top_k: keep so many of the likeliest; 0: all.
        typical_p: keep the tokens whose surprise is nearest to the expected one, until they have
            this share, above 0 to 1; 1: all.
        top_p: keep the likeliest until they have this share, above 0 to 1; 1: all.
        min_p: keep what has this share of the best's chance, 0 to 1; 0: all.
        repetition_penalty: divides positive logits of tokens that are in the text, prompt
            included, and multiplies negative ones, 0.01 to 100; 1: off.
        presence_penalty: taken from the logits of tokens that were generated, -100 to 100.
        frequency_penalty: the same, as often as they were generated, -100 to 100.
        repeat_last_n: how many tokens these three look back; None: all, 0: none.
        dry_multiplier: a token that would prolong the repetition of an earlier passage of m tokens
            loses dry_multiplier · dry_base^(m - dry_allowed_length), 0 to 100; 0: off.
        dry_base: see there, 1 to 100.
        dry_allowed_length: passages shorter than this are free, from 1 on.
        dry_penalty_last_n: how many tokens DRY looks back; None: all, 0: none.
        dry_sequence_breakers: texts; a passage does not reach over a token that has one in it.
        xtc_probability: how often to exclude the top choices, all but the last of those whose
            chance is at least `xtc_threshold`, 0 to 1; 0: off.
        xtc_threshold: see there, above 0 to 1.
        logit_bias: token id → added to its logit, -100 to 100; -100 bans it.
        suppress_tokens: ids that never come.
        visible_tokens: ids of control tokens that a grammar may name, and whose text shows.
        seed: the key of the draws, 0 to 2^64 - 1; None draws one, which `Generation.seed` has.
        choice: which of several texts with one seed, from 0 on.
        max_tokens: the longest text, in tokens; None goes on to the end of text or context.
        stop: texts before which the text ends.
        ignore_eos: go on where the model would end.
        logprobs: keep so many likely tokens beside each chosen one, up to 20; 0: none.
        speculation: guess tokens that the text has said before: "auto", as many as pay; "off"; or
            so many, 1 to 16. It changes the speed, and no token.
        prediction: text or ids that the reply is expected to be like, to take guesses from. It
            changes the speed, and no token.
        json_schema: the text is JSON that is valid under this schema: a value, or its text.
        regex: the text matches this expression as a whole; Rust's syntax.
        grammar: the text is derived by this grammar: Lark, or GBNF.
    """

    temperature: float = 0.8
    top_k: int = 40
    typical_p: float = 1.0
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int | None = None
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    suppress_tokens: tuple[int, ...] = ()
    visible_tokens: tuple[int, ...] = ()
    seed: int | None = None
    choice: int = 0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int = 0
    speculation: str | int = "auto"
    prediction: str | tuple[int, ...] | None = None
    json_schema: Any = None  # kept as its text
    regex: str | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)  # frozen: only while constructing

        def number(name: str, low: float, high: float, *, open_low: bool = False) -> None:
            put(name, _number(name, getattr(self, name), low, high, open_low=open_low))

        def integer(name: str, low: int, high: int, *, optional: bool = False) -> None:
            if not (optional and getattr(self, name) is None):
                put(name, _integer(name, getattr(self, name), low, high))

        number("temperature", 0.0, 100.0)
        integer("top_k", 0, _MAX_INT)
        number("typical_p", 0.0, 1.0, open_low=True)
        number("top_p", 0.0, 1.0, open_low=True)
        number("min_p", 0.0, 1.0)
        number("repetition_penalty", 0.01, 100.0)  # logits are divided by it, in single precision
        number("presence_penalty", -100.0, 100.0)
        number("frequency_penalty", -100.0, 100.0)
        integer("repeat_last_n", 0, _MAX_INT, optional=True)
        number("dry_multiplier", 0.0, 100.0)
        number("dry_base", 1.0, 100.0)
        integer("dry_allowed_length", 1, _MAX_INT)
        integer("dry_penalty_last_n", 0, _MAX_INT, optional=True)
        put("dry_sequence_breakers", self._checked_texts("dry_sequence_breakers"))
        number("xtc_probability", 0.0, 1.0)
        number("xtc_threshold", 0.0, 1.0, open_low=True)
        put("logit_bias", self._checked_logit_bias())
        put("suppress_tokens", self._checked_ids("suppress_tokens"))
        put("visible_tokens", self._checked_ids("visible_tokens"))
        integer("seed", 0, MAX_SEED, optional=True)
        integer("choice", 0, 2**32 - 1)
        integer("max_tokens", 0, _MAX_INT, optional=True)
        put("stop", self._checked_texts("stop"))
        if not isinstance(self.ignore_eos, bool):
            raise InvalidOption(
                f"`ignore_eos`: expected True or False, found {shown(self.ignore_eos)}"
            )
        integer("logprobs", 0, MAX_LOGPROBS)
        self._check_speculation()
        if self.prediction is not None and not isinstance(self.prediction, str):
            put("prediction", self._checked_ids("prediction"))
        self._check_constraint()
        if self.json_schema is not None:
            put("json_schema", json_schema.checked(self.json_schema))

    def _checked_logit_bias(self) -> dict[int, float]:
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidOption(
                "`logit_bias`: expected a mapping of token id to bias, "
                f"found {shown(self.logit_bias)}"
            )
        checked = {}
        for key, value in self.logit_bias.items():
            if isinstance(key, bool) or not isinstance(key, (int, str)):
                raise InvalidOption(f"`logit_bias`: expected token ids as keys, found {shown(key)}")
            try:
                token = int(key)
            except ValueError:
                raise InvalidOption(
                    f"`logit_bias`: expected token ids as keys, found {shown(key)}"
                ) from None
            token = _integer("logit_bias", token, 0, 2**31 - 1)
            checked[token] = _number(f"logit_bias[{token}]", value, -100.0, 100.0)
        return checked

    def _checked_texts(self, name: str) -> tuple[str, ...]:
        value = getattr(self, name)
        texts = (value,) if isinstance(value, str) else value
        if texts is None or not isinstance(texts, (list, tuple)):
            raise InvalidOption(
                f"`{name}`: expected a string or a list of strings, found {shown(value)}"
            )
        for text in texts:
            if not isinstance(text, str) or not text:
                raise InvalidOption(f"`{name}`: expected non-empty strings, found {shown(text)}")
            self._refuse_surrogates(name, text)
        return tuple(texts)

    def _checked_ids(self, name: str) -> tuple[int, ...]:
        value = getattr(self, name)
        if not isinstance(value, (list, tuple)):
            raise InvalidOption(f"`{name}`: expected a list of token ids, found {shown(value)}")
        return tuple(_integer(name, token, 0, _MAX_INT) for token in value)

    def _check_speculation(self) -> None:
        value = self.speculation
        is_mode = isinstance(value, str) and value in SPECULATION_MODES
        is_count = isinstance(value, int) and not isinstance(value, bool)
        if not is_mode and not (is_count and 1 <= value <= MAX_GUESSES):  # type: ignore[operator]
            raise InvalidOption(
                f"`speculation`: expected {', '.join(SPECULATION_MODES)} or 1 to {MAX_GUESSES} "
                f"guesses, found {shown(value)}"
            )

    def _check_constraint(self) -> None:
        given = [n for n in ("json_schema", "regex", "grammar") if getattr(self, n) is not None]
        if len(given) > 1:
            raise InvalidOption(
                f"`{given[1]}`: expected one constraint, found `{given[0]}` too",
                hint="leave one of them out",
            )
        for name in ("regex", "grammar"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str) or not value:
                raise InvalidOption(f"`{name}`: expected a non-empty string, found {shown(value)}")
            if len(value) > MAX_CONSTRAINT:
                raise InvalidOption(
                    f"`{name}`: expected at most {MAX_CONSTRAINT:,} characters, "
                    f"found {len(value):,}"
                )
            self._refuse_surrogates(name, value)

    @staticmethod
    def _refuse_surrogates(name: str, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidOption(
                f"`{name}`: expected Unicode characters, found a lone surrogate in {shown(text)}"
            ) from None

    @property
    def is_constrained(self) -> bool:
        """Tell whether only some texts may come."""
        return any(text is not None for text in (self.json_schema, self.regex, self.grammar))

    @property
    def looks_back(self) -> bool:
        """Tell whether the choice of a token depends on those before it, beyond the logits."""
        return bool(
            self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
            or self.dry_multiplier
        )

    def merged(self, **overrides: Any) -> SamplingParams:
        """Return a copy with `overrides` applied; an unknown name is an error that suggests one."""
        known = [f.name for f in dataclasses.fields(self)]
        for name in overrides:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = (
                    f"did you mean `{close[0]}`?" if close else f"known options: {', '.join(known)}"
                )
                raise InvalidOption(f"Unknown sampling option `{name}`", hint=hint)
        return dataclasses.replace(self, **overrides)
