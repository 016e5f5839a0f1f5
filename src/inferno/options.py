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

from inferno.errors import InvalidOption
from inferno.excerpt import shown

MAX_SEED = 2**64 - 1
MAX_LOGPROBS = 20  # OpenAI's limit for `top_logprobs`
SPECULATION_MODES = ("auto", "off")


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

    `temperature=0` is greedy. Zero turns `top_k` and `min_p` off, one turns `top_p` and
    `repetition_penalty` off. `seed=None` draws a fresh seed, reported in `Generation.seed`.
    `max_tokens=None` goes on to the end of the text or of the context.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int = 0
    speculation: str = "auto"
    json_schema: Any = None
    regex: str | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)  # frozen: only while constructing

        put("temperature", _number("temperature", self.temperature, 0.0, 100.0))
        put("top_k", _integer("top_k", self.top_k, 0, 2**31 - 1))
        put("top_p", _number("top_p", self.top_p, 0.0, 1.0, open_low=True))
        put("min_p", _number("min_p", self.min_p, 0.0, 1.0))
        put(
            "repetition_penalty",
            # Logits are divided by it, in single precision.
            _number("repetition_penalty", self.repetition_penalty, 0.01, 100.0),
        )
        put("presence_penalty", _number("presence_penalty", self.presence_penalty, -100.0, 100.0))
        put(
            "frequency_penalty", _number("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        )
        put("logit_bias", self._checked_logit_bias())
        if self.seed is not None:
            put("seed", _integer("seed", self.seed, 0, MAX_SEED))
        if self.max_tokens is not None:
            put("max_tokens", _integer("max_tokens", self.max_tokens, 0, 2**31 - 1))
        put("stop", self._checked_stop())
        if not isinstance(self.ignore_eos, bool):
            raise InvalidOption(
                f"`ignore_eos`: expected True or False, found {shown(self.ignore_eos)}"
            )
        put("logprobs", _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS))
        if self.speculation not in SPECULATION_MODES:
            raise InvalidOption(
                f"`speculation`: expected one of {', '.join(SPECULATION_MODES)}, "
                f"found {shown(self.speculation)}"
            )
        for name in ("json_schema", "regex", "grammar"):
            if getattr(self, name) is not None:
                raise InvalidOption(
                    f"`{name}`: constrained output is not supported by this version",
                    hint=f"leave `{name}` out and check the reply yourself",
                )

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

    def _checked_stop(self) -> tuple[str, ...]:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        if stop is None or not isinstance(stop, (list, tuple)):
            raise InvalidOption(
                f"`stop`: expected a string or a list of strings, found {shown(self.stop)}"
            )
        for text in stop:
            if not isinstance(text, str) or not text:
                raise InvalidOption(f"`stop`: expected non-empty strings, found {shown(text)}")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidOption(
                    f"`stop`: expected Unicode characters, found a lone surrogate in {shown(text)}"
                ) from None
        return tuple(stop)

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
