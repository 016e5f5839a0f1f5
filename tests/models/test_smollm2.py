"""The default model, if it is in the cache: what it knows, and how far int8 takes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import checkpoints
import engines
from inferno import Engine
from reference import forward

pytestmark = pytest.mark.real_model

POSITIONS = 500
MARGIN = 0.1  # logits: below it, rounding may decide between the two best


@pytest.fixture(scope="module")
def path() -> Path:
    return engines.default_model()


@pytest.fixture(scope="module")
def engine(path: Path) -> Engine:
    return engines.load(path, threads=2)


def test_it_knows_the_capital_of_france(engine: Engine) -> None:
    text = engine.generate("The capital of France is", temperature=0, max_tokens=8).text
    assert text.startswith(" Paris")


def test_it_answers_a_question(engine: Engine) -> None:
    question = {"role": "user", "content": "What is the capital of France?"}
    # The system message that its template puts in by itself leads it astray.
    messages = [{"role": "system", "content": ""}, question]
    answer = engine.chat(messages, temperature=0, max_tokens=40)
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"


def test_it_agrees_with_float32_on_prose(engine: Engine, path: Path, prose: str) -> None:
    """The reference multiplies the dequantized weights in float32, with no int8 and no f16."""
    config, tensors = checkpoints.read_gguf(path)
    ids = engine.tokenizer.encode(prose)[:POSITIONS]
    assert len(ids) == POSITIONS
    expected = forward.log_probabilities(forward.logits(config, tensors, ids))
    found = forward.log_probabilities(engine.logits(ids))

    divergence = (np.exp(expected) * (expected - found)).sum(axis=1).mean()
    best = np.sort(expected, axis=1)
    decided = best[:, -1] - best[:, -2] > MARGIN
    same = expected.argmax(axis=1) == found.argmax(axis=1)
    print(
        f"SmolLM2: mean KL {divergence:.5f}, same top-1 at {same[decided].mean():.2%} of "
        f"{decided.sum()} decided positions, {same.mean():.2%} of all {POSITIONS}"
    )
    assert divergence < 0.005
    assert same[decided].mean() >= 0.99
