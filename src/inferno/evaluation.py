"""How good a model is at a text, and how far others are from it: perplexity with its error, top-1
agreement, Kullback-Leibler divergence.

A text longer than a window is gone through in windows that overlap. Each token is scored once, in
the first window that reaches it, so that all but those of the first window have at least
`window - stride` tokens before them. A model that begins texts with a token (BOS) finds it at the
beginning of each window. Logits are compared some rows at a time and let go.

Errors are standard errors of means, as if tokens were independent: what one would expect from
another text of this kind and length. Differences are paired, token by token, so their errors are
much smaller than those of the perplexities themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from inferno.errors import InvalidOption, InvalidText
from inferno.excerpt import shown
from inferno.graph import Floats
from inferno.loading import Progress
from inferno.passes import logit_blocks
from inferno.recipes import weight_choices
from inferno.scoring import exponential

if TYPE_CHECKING:
    from inferno.engine import Engine

MIN_TOKENS = 16  # fewer say nothing about a model, and their error nothing about the error
DEFAULT_WINDOW = 2048

_Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mean:
    """A mean and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: _Values) -> Mean:
        """Return the mean of (n,) values, n > 1."""
        count, mean = len(values), math.fsum(values.tolist()) / len(values)
        squares = math.fsum(np.square(values - mean).tolist())
        return cls(mean, math.sqrt(squares / (count - 1) / count))

    def exp(self) -> Mean:
        """Return the exponential, its error to first order."""
        value = exponential(self.value)
        return Mean(value, value * self.error)


@dataclass(frozen=True)
class Quality:
    """What one model does with the text; natural logarithms."""

    name: str
    formats: tuple[str, ...]
    kv_cache: str
    loss: Mean
    excess_loss: Mean | None = None  # over the reference's, token by token
    top1: Mean | None = None  # share of tokens where its likeliest token is the reference's
    kl: Mean | None = None  # of its distribution from the reference's

    @property
    def perplexity(self) -> Mean:
        return self.loss.exp()


@dataclass(frozen=True)
class Evaluation:
    """The reference first, then what was compared with it."""

    tokens: int  # scored
    window: int
    stride: int
    qualities: tuple[Quality, ...]


def evaluate(
    engine: Engine,
    text: str,
    *,
    against: Sequence[tuple[str, Engine]] = (),
    window: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure `engine` on a text, and others `against` it: (a name, an engine) each.

    Args:
        window: tokens a pass sees; by default 2048, or the shortest context.
        stride: by how many tokens windows advance; by default half the window.
        progress: called with ("evaluating", scored tokens, all tokens).

    Raises:
        InvalidOption: `window` or `stride` cannot be, or a model has another vocabulary.
        InvalidText: the text has fewer than 16 tokens to score.
    """
    engines = [engine, *(other for _, other in against)]
    ids = engine.tokenizer.encode(text)
    for name, other in against:
        same_size = other.config.vocab_size == engine.config.vocab_size
        if not same_size or other.tokenizer.encode(text) != ids:
            raise InvalidOption(
                f"Model {shown(name)}: expected the vocabulary of `{engine.config.name}`, "
                f"found another ({other.config.vocab_size:,} tokens, and "
                f"{engine.config.vocab_size:,})",
                hint="only perplexity a byte compares models of different tokenizers",
            )
    longest = min(one.context for one in engines)
    window = _checked("window", window, min(DEFAULT_WINDOW, longest), 2, longest)
    stride = _checked("stride", stride, max(1, window // 2), 1, window - 1)
    bos = engine.tokenizer.bos_id if engine.tokenizer.adds_bos else None
    prefix = [] if bos is None else [bos]
    first = 0 if prefix else 1  # the first token of a text follows nothing
    count = len(ids) - first
    if count < MIN_TOKENS:
        raise InvalidText(
            f"The text: expected at least {MIN_TOKENS} tokens to score, found {max(0, count)}",
            hint="take a longer text; a thousand words give an error of some percent",
        )
    tally = _Tally(engines, count)
    for start, end, scored in _windows(len(ids), first, window - len(prefix), stride):
        sequence = [*prefix, *ids[start:end]]
        # The row of a token predicts the one after it.
        row = len(prefix) + scored - start - 1
        blocks = zip(*(logit_blocks(one, sequence[:-1], row) for one in engines), strict=True)
        for logits in blocks:
            targets = sequence[row + 1 : row + 1 + len(logits[0])]
            tally.add(logits, targets)
            row += len(targets)
            if progress is not None:
                progress("evaluating", tally.done, count)
    names = [engine.config.name, *(name for name, _ in against)]
    return Evaluation(count, window, stride, tuple(tally.qualities(names)))


def names_weights(name: str) -> bool:
    """Tell whether what a model is compared with is itself, quantized to `name` while loading."""
    return name in weight_choices()


def _checked(name: str, asked: int | None, default: int, least: int, most: int) -> int:
    if asked is None:
        return default
    if isinstance(asked, bool) or not isinstance(asked, int) or not least <= asked <= most:
        raise InvalidOption(
            f"`{name}`: expected an integer from {least} to {most:,}, found {shown(asked)}"
        )
    return asked


def _windows(count: int, first: int, size: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, first to be scored) of windows over `count` tokens."""
    start, scored = 0, first
    while scored < count:
        end = min(start + size, count)
        yield start, end, scored
        start, scored = start + stride, end


class _Tally:
    """A few numbers a token and model; the logits they are made of are not kept."""

    def __init__(self, engines: Sequence[Engine], count: int) -> None:
        self._engines = engines
        self._losses = np.empty((len(engines), count))
        self._kl = np.empty((len(engines) - 1, count))
        self._agrees = np.empty((len(engines) - 1, count))
        self.done = 0

    def add(self, logits: Sequence[Floats], targets: Sequence[int]) -> None:
        """Take rows of every model: (rows, vocab_size) each, and the tokens that came."""
        here = slice(self.done, self.done + len(targets))
        self.done += len(targets)
        totals = [
            np.array([one._executor.log_sum_exp(row) for row in rows])
            for one, rows in zip(self._engines, logits, strict=True)
        ]
        for number, (rows, total) in enumerate(zip(logits, totals, strict=True)):
            self._losses[number, here] = total - rows[np.arange(len(targets)), targets]
        if len(logits) == 1:
            return
        reference, best = logits[0], logits[0].argmax(axis=1)
        divergence = self._engines[0]._executor.divergence
        for number, (rows, total) in enumerate(zip(logits[1:], totals[1:], strict=True)):
            self._kl[number, here] = [*map(divergence, reference, totals[0], rows, total)]
            self._agrees[number, here] = rows.argmax(axis=1) == best

    def qualities(self, names: Sequence[str]) -> Iterator[Quality]:
        """Yield what was found, the reference first."""
        for number, (name, one) in enumerate(zip(names, self._engines, strict=True)):
            loss = Mean.of(self._losses[number])
            if number == 0:
                yield Quality(name, one.weight_formats, one.kv_cache, loss)
                continue
            yield Quality(
                name,
                one.weight_formats,
                one.kv_cache,
                loss,
                Mean.of(self._losses[number] - self._losses[0]),
                Mean.of(self._agrees[number - 1]),
                Mean.of(self._kl[number - 1]),
            )
