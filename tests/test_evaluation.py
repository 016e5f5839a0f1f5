"""Evaluation: every token once, in windows; figures by numpy from the logits themselves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import engines
from inferno import Engine, InvalidOption, InvalidText
from inferno.evaluation import Mean, _windows, evaluate

TEXT = "Once upon a time there was a little dog. He lived in a big house by the sea. " * 3


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.fixture(scope="module")
def rounded(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf, weights="q8_0")


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    return (
        x
        - np.log(np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
        - x.max(axis=1, keepdims=True)
    )


def test_a_text_of_one_window_has_the_perplexity_of_its_score(engine: Engine) -> None:
    (quality,) = evaluate(engine, TEXT).qualities
    assert math.isclose(quality.perplexity.value, engine.score(TEXT).perplexity, rel_tol=1e-6)


def test_figures_are_those_of_the_whole_distributions(engine: Engine, rounded: Engine) -> None:
    assert engine.tokenizer.bos_id is not None
    ids = [engine.tokenizer.bos_id, *engine.tokenizer.encode(TEXT)]
    p, q = (log_softmax(one.logits(ids))[:-1] for one in (engine, rounded))
    losses = [-x[np.arange(len(x)), ids[1:]] for x in (p, q)]
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    evaluation = evaluate(engine, TEXT, against=[("rounded", rounded)])
    reference, other = evaluation.qualities
    assert evaluation.tokens == len(ids) - 1
    for quality, loss in zip((reference, other), losses, strict=True):
        assert math.isclose(quality.loss.value, loss.mean(), rel_tol=1e-6)
        assert math.isclose(
            quality.loss.error, loss.std(ddof=1) / math.sqrt(len(loss)), rel_tol=1e-6
        )
        assert math.isclose(quality.perplexity.value, math.exp(loss.mean()), rel_tol=1e-6)
    assert other.kl and other.top1 and other.excess_loss
    # Chances are float32: 512 of them, each wrong by 2^-24, times differences of logits below 1.
    assert abs(other.kl.value - kl.mean()) < 1e-6
    assert other.top1.value == (p.argmax(axis=1) == q.argmax(axis=1)).mean()
    assert math.isclose(other.excess_loss.value, (losses[1] - losses[0]).mean(), abs_tol=1e-7)


def test_a_model_does_not_differ_from_itself(engine: Engine, stories_gguf: Path) -> None:
    again = engines.load(stories_gguf, threads=2)
    _, same = evaluate(engine, TEXT, against=[("itself", again)]).qualities
    assert (same.kl, same.top1, same.excess_loss) == (Mean(0, 0), Mean(1, 0), Mean(0, 0))


def test_an_evaluation_has_the_same_bits_in_every_instruction_set(
    stories_gguf: Path, isa: str
) -> None:
    def measured(isa: str) -> str:
        one, other = (
            engines.load(stories_gguf, weights=w, isa=isa, threads=2) for w in (None, "q4_0")
        )
        return repr(evaluate(one, TEXT, against=[("q4_0", other)]))

    assert measured(isa) == measured("scalar")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("count", "size", "stride"), [(20, 7, 3), (20, 7, 6), (7, 7, 1), (8, 7, 2)]
)
def test_windows_score_each_token_once_with_enough_before_it(first, count, size, stride) -> None:
    seen: list[int] = []
    for start, end, scored in _windows(count, first, size, stride):
        assert (end - start <= size and start < scored < end) or (start, scored) == (0, 0)
        if start:
            assert scored - start >= size - stride
        seen += range(scored, end)
    assert seen == list(range(first, count))


def test_windows_are_read_as_texts_of_their_own(engine: Engine) -> None:
    """Token by token: what a window says of a token is what its logits say."""
    bos, body = engine.tokenizer.bos_id, engine.tokenizer.encode(TEXT)
    assert bos is not None
    losses: list[float] = []
    for start, end, scored in _windows(len(body), 0, 19, 8):
        ids = [bos, *body[start:end]]
        x = log_softmax(engine.logits(ids))
        losses += [-x[i - start, body[i]] for i in range(scored, end)]
    (quality,) = evaluate(engine, TEXT, window=20, stride=8).qualities
    assert math.isclose(quality.loss.value, float(np.mean(losses)), rel_tol=1e-6)


@pytest.mark.parametrize("text", ["", "abc", "Once"])
def test_a_text_that_says_nothing_is_an_error(engine: Engine, text: str) -> None:
    with pytest.raises(InvalidText, match="expected at least 16 tokens"):
        evaluate(engine, text)


@pytest.mark.parametrize(
    "options",
    [{"window": 1}, {"window": 10**9}, {"window": True}, {"stride": 0}, {"window": 8, "stride": 8}],
)
def test_windows_that_cannot_be_are_refused(engine: Engine, options: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match="expected an integer from"):
        evaluate(engine, TEXT, **options)  # type: ignore[arg-type]


def test_another_vocabulary_is_refused(engine: Engine, llama_gguf: Path) -> None:
    with pytest.raises(InvalidOption, match=r"Model 'other': expected the vocabulary of"):
        evaluate(engine, TEXT, against=[("other", engines.load(llama_gguf))])


def test_progress_counts_the_tokens(engine: Engine) -> None:
    calls: list[tuple[str, int, int]] = []
    evaluation = evaluate(engine, TEXT, window=20, progress=lambda *call: calls.append(call))
    assert calls[-1] == ("evaluating", evaluation.tokens, evaluation.tokens)
