"""stories260K, a real if tiny model: what it says is known to the character."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import checkpoints
import engines
import f16_cache
from inferno import Engine, _native


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.mark.parametrize("isa", _native.isas())
def test_the_greedy_text_is_known_to_the_character(
    stories_gguf: Path, stories_greedy: dict[str, Any], isa: str
) -> None:
    engine = engines.load(stories_gguf, isa=isa)
    generation = engine.generate("", temperature=0, max_tokens=200)
    assert generation.text == stories_greedy["text"]
    assert [1, *generation.tokens] == stories_greedy["ids"]


def test_the_greedy_text_of_safetensors_is_the_same(
    tmp_path: Path, engine: Engine, stories_greedy: dict[str, Any]
) -> None:
    """The directory has no tokenizer, so one is lent; rows of q and k are in the other order."""
    checkpoints.save_tokenizer(
        checkpoints.stories_directory(tmp_path), checkpoints.stories_tensors()[0]
    )
    other = engines.load(tmp_path)
    ids = stories_greedy["ids"]
    assert other.logits(ids).tobytes() == engine.logits(ids).tobytes()


def test_logits_agree_with_the_reference(
    engine: Engine, stories_gguf: Path, stories_greedy: dict[str, Any]
) -> None:
    config, tensors = checkpoints.read_gguf(stories_gguf)
    expected = f16_cache.reference_logits(config, tensors, stories_greedy["ids"])
    distance = f16_cache.distance(engine.logits(stories_greedy["ids"]), expected)
    print(f"stories260K: relative distance of {expected.size:,} logits {distance:.1e}")
    assert distance < 1e-4


@pytest.mark.parametrize("format", ["f16", "bf16", "q8_0", "q4_0"])
def test_a_quantized_story_begins_the_same(
    tmp_path: Path, stories_greedy: dict[str, Any], format: str
) -> None:
    engine = engines.load(checkpoints.stories260k(tmp_path / "stories.gguf", format))
    text = engine.generate("", temperature=0, max_tokens=30).text
    assert text.startswith("Once upon a time, there was a little")


def test_the_model_finds_its_own_story_likely(
    engine: Engine, stories_greedy: dict[str, Any]
) -> None:
    assert engine.score(stories_greedy["ids"]).perplexity < 2
    assert engine.score(sorted(stories_greedy["ids"])).perplexity > 50
