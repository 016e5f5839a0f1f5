"""What a model is, without loading it: compared with the engine that loads it."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

import architectures
import checkpoints
import engines
from inferno import InvalidOption, ModelNotFound, hub, loading
from inferno.description import describe


@pytest.mark.parametrize("weights", [None, "q4_0"])
@pytest.mark.parametrize("kind", ["llama_gguf", "llama_directory", "qwen2_directory"])
def test_a_description_agrees_with_the_engine(request, kind: str, weights: str | None) -> None:
    path = request.getfixturevalue(kind)
    described, engine = describe(path, weights=weights), engines.load(path, weights=weights)
    assert described.stop_tokens.keys() == engine.stop_ids
    assert described.memory.kv_cache_per_token == engine.memory.kv_cache_per_token
    assert described.memory.context == engine.context
    assert described.memory.weights <= engine.memory.weights <= 1.05 * described.memory.weights
    formats = {row["format"] for row in described.plan if "format" in row}
    assert formats == set(engine.weight_formats)
    assert described.config == engine.config


def test_parameters_are_counted_one_by_one(llama_directory: Path) -> None:
    expected = sum(map(prod, checkpoints.shapes(checkpoints.tiny_config()).values()))
    described = describe(llama_directory)
    assert described.parameters == expected
    assert described.formats == {"f32": expected}
    assert described.bytes == 4 * expected


def test_nothing_is_packed_and_no_page_of_weights_is_read(
    llama_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_pack", lambda *_: pytest.fail("it packed"))
    monkeypatch.setattr(loading, "_vector", lambda *_: pytest.fail("it read a vector"))
    assert describe(llama_gguf).config.num_hidden_layers == 2


def test_the_plan_names_every_weight_once_with_its_shape_and_bytes(llama_gguf: Path) -> None:
    described = describe(llama_gguf)
    rows = [row for row in described.plan if "matrix" in row]
    assert [row["matrix"] for row in rows[:2]] == [
        "model.embed_tokens",
        " + ".join(f"model.layers.0.self_attn.{part}_proj" for part in "qkv"),
    ]
    assert rows[1]["shape"] == [64 + 32 + 32, 64]
    norms = 5 * 64 * 4  # two a layer and one at the end, 64 floats each
    assert sum(row["bytes"] for row in rows) == described.memory.weights - norms
    assert rows[-1]["matrix"] == "lm_head"
    kinds = [row["operation"] for row in described.plan]
    assert kinds.count("attention") == 2 and kinds[0] == "embed"


def test_the_plan_shows_the_experts_of_a_layer_as_one(tmp_path: Path) -> None:
    described = describe(architectures.save(tmp_path, "qwen3_moe"))  # 7 experts, 40 wide
    rows = [row for row in described.plan if "experts" in row.get("matrix", "")]
    assert [row["shape"] for row in rows[:2]] == [[7, 40 + 40, 64], [7, 64, 40]]
    stem = "model.layers.0.mlp.experts.*."
    assert rows[0]["matrix"] == f"{stem}gate_proj + {stem}up_proj"
    vectors = (9 * 64 + 8 * 16) * 4  # norms, of rows and of heads
    total = sum(row.get("bytes", 0) for row in described.plan)
    assert total == described.memory.weights - vectors


def test_the_memory_is_for_the_context_that_is_asked_about(llama_gguf: Path) -> None:
    short, long = (describe(llama_gguf, context=context).memory for context in (64, 256))
    assert long.kv_cache == 4 * short.kv_cache == 256 * long.kv_cache_per_token
    assert short.total == short.weights + short.kv_cache + short.scratch
    assert describe(llama_gguf, context=65).memory.kv_cache == 2 * short.kv_cache  # whole pages
    with pytest.raises(InvalidOption, match="`context`"):
        describe(llama_gguf, context=257)


@pytest.mark.parametrize("model", ["qwen2.5-0.5b-instruct", "hf.co/org/repo:Q8_0"])
def test_what_is_not_here_yet_says_how_to_fetch_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path))
    monkeypatch.setattr(hub.repositories, "cached", lambda reference: None)
    with pytest.raises(ModelNotFound, match="not on this disk yet") as caught:
        describe(model)
    assert f"`inferno pull {model}`" in caught.value.hint


def test_a_licence_and_a_source_come_from_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gguf

    def add_name(writer: gguf.GGUFWriter, name: str) -> None:
        writer.add_string("general.license", "apache-2.0")
        writer.add_string("general.source.url", "https://example.org/m")

    monkeypatch.setattr(gguf.GGUFWriter, "add_name", add_name)
    described = describe(engines.tiny_gguf(tmp_path / "m.gguf"))
    assert (described.licence, described.source) == ("apache-2.0", "https://example.org/m")
    monkeypatch.undo()
    described = describe(engines.tiny_gguf(tmp_path / "n.gguf"))
    assert (described.licence, described.source) == (None, None)
