"""Loading: which tensors a model must have, what weights may become, what fits in memory."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import architectures
import checkpoints
import engines
import f16_cache
from inferno import InvalidCheckpoint, InvalidOption, OutOfMemory, loading
from inferno.description import describe

IDS = engines.random_ids(40)
LAYER = "model.layers.1"
CACHES = loading.KV_CACHE_TYPES

Change = Callable[[dict[str, Any]], None]


def changed_gguf(path: Path, change: Change, **options: Any) -> Path:
    """Write a tiny Llama of which `change` has done something to the tensors."""
    config = checkpoints.tiny_config(**options)
    tensors = checkpoints.random_tensors(config)
    change(tensors)
    return checkpoints.gguf_llama(path / "model.gguf", config, tensors)


def changed_directory(path: Path, source: Path, change: Change) -> Path:
    """Copy a directory of safetensors and change its tensors."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(source, path, dirs_exist_ok=True)
    file = path / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, file)
    return path


# ---- tensors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        f"{LAYER}.input_layernorm.weight",
        f"{LAYER}.self_attn.k_proj.weight",
        f"{LAYER}.self_attn.v_proj.bias",
        f"{LAYER}.mlp.down_proj.weight",
    ],
)
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    path = changed_gguf(tmp_path, lambda tensors: tensors.pop(name), bias=True)
    with pytest.raises(InvalidCheckpoint, match=f"`{name}`.*missing"):
        engines.load(path)


def test_a_missing_head_is_named(tmp_path: Path, llama_directory: Path) -> None:
    """In config.json a model says that it has one; in GGUF a missing one means that it is tied."""
    path = changed_directory(tmp_path, llama_directory, lambda t: t.pop("lm_head.weight"))
    with pytest.raises(InvalidCheckpoint, match=r"`lm_head.weight`.*missing"):
        engines.load(path)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.2.self_attn.q_proj.weight",
        f"{LAYER}.mlp.down_proj.bias",
        f"{LAYER}.self_attn.rotary.weight",
        "score.weight",
    ],
)
def test_a_tensor_that_nobody_asked_for_is_named(
    tmp_path: Path, llama_directory: Path, name: str
) -> None:
    def add(tensors: dict[str, Any]) -> None:
        tensors[name] = np.zeros((64,), np.float32)

    path = changed_directory(tmp_path, llama_directory, add)
    with pytest.raises(InvalidCheckpoint, match=f"`{name}`.*no use for it"):
        engines.load(path)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.embed_tokens.weight", (319, 64)),
        ("lm_head.weight", (320, 96)),
        ("model.norm.weight", (32,)),
        (f"{LAYER}.self_attn.q_proj.weight", (32, 64)),
        (f"{LAYER}.self_attn.k_proj.weight", (64, 64)),
        (f"{LAYER}.mlp.gate_proj.weight", (64, 96)),
        (f"{LAYER}.mlp.down_proj.weight", (64 * 96,)),
    ],
)
def test_a_tensor_of_the_wrong_shape_is_named(
    tmp_path: Path, llama_directory: Path, name: str, shape: tuple[int, ...]
) -> None:
    def reshape(tensors: dict[str, Any]) -> None:
        tensors[name] = np.zeros(shape, np.float32)

    path = changed_directory(tmp_path, llama_directory, reshape)
    with pytest.raises(InvalidCheckpoint) as caught:
        engines.load(path)
    assert f"`{name}`" in caught.value.message
    assert f"found {shape}" in caught.value.message


def test_tables_of_frequencies_that_old_files_hold_are_left_out(
    tmp_path: Path, llama_directory: Path
) -> None:
    def add(tensors: dict[str, Any]) -> None:
        tensors[f"{LAYER}.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)

    path = changed_directory(tmp_path, llama_directory, add)
    assert engines.load(path).logits(IDS).tobytes() == logits(llama_directory)


def test_a_tied_head_that_was_left_in_is_left_out(tmp_path: Path) -> None:
    tied = checkpoints.tiny_llama(tmp_path / "tied", ties=True)

    def add(tensors: dict[str, Any]) -> None:
        tensors["lm_head.weight"] = np.zeros((320, 64), np.float32)  # were it read, we would know

    path = changed_directory(tmp_path / "both", tied, add)
    assert logits(path) == logits(tied)


# ---- weights that become others ------------------------------------------------------------------


def logits(path: Path, **options: Any) -> bytes:
    return engines.load(path, **options).logits(IDS).tobytes()


@pytest.mark.parametrize("weights", ["q4_0", "q5_0", "q5_1", "q8_0", "f16", "bf16", "f32"])
@pytest.mark.parametrize(
    ("model_type", "options"),
    [("llama", {"bias": True}), ("llama", {"ties": True, "kv_heads": 4}), ("qwen2", {})],
    ids=["llama", "tied llama", "qwen2"],
)
def test_quantizing_while_loading_equals_loading_what_gguf_quantized(
    tmp_path: Path, model_type: str, options: dict[str, Any], weights: str
) -> None:
    """The embedding is kept in q8_0 where the rest goes to fewer bits."""
    config = checkpoints.tiny_config(model_type, **options)
    tensors = checkpoints.random_tensors(config)
    floats = checkpoints.gguf_llama(tmp_path / "floats.gguf", config, tensors)
    formats = {"embed_tokens": "q8_0"} if weights[:2] in ("q4", "q5") else {}
    quantized = checkpoints.gguf_llama(
        tmp_path / "quantized.gguf", config, tensors, format=weights, formats=formats
    )
    assert logits(floats, weights=weights) == logits(quantized)
    assert logits(quantized, weights=None) == logits(quantized)


@pytest.mark.parametrize("weights", ["q4_0", "q8_0"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_quantized_as_their_floats(tmp_path: Path, weights: str, dtype: str) -> None:
    config = checkpoints.tiny_config(bias=True)
    tensors = checkpoints.rounded(checkpoints.random_tensors(config), dtype)
    halves = checkpoints.save_checkpoint(tmp_path / "halves", config, tensors, dtype)
    floats = checkpoints.gguf_llama(tmp_path / "floats.gguf", config, tensors)
    assert logits(halves, weights=weights) == logits(floats, weights=weights)


def test_the_formats_of_an_engine_are_those_of_its_matrices(llama_gguf: Path) -> None:
    assert engines.load(llama_gguf).weight_formats == ("f32",)
    assert engines.load(llama_gguf, weights="q4_0").weight_formats == ("q4_0", "q8_0")
    small, large = (engines.load(llama_gguf, weights=w).memory.weights for w in ("q4_0", "f32"))
    assert small < large / 4


def test_rows_that_are_no_whole_blocks_can_be_quantized(tmp_path: Path) -> None:
    """Their last block is filled with zeros; what is stored that way stays close."""
    options = {"hidden": 40, "intermediate": 50, "heads": 2, "kv_heads": 1, "head_dim": 24}
    path = engines.tiny_gguf(tmp_path / "odd.gguf", **options)
    exact = engines.load(path).logits(IDS)
    rough = engines.load(path, weights="q8_0").logits(IDS)
    assert np.linalg.norm(rough - exact) < 0.02 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("stored", "weights"), [("q8_0", "q4_0"), ("q4_0", "q5_0"), ("q4_1", "q4_0"), ("q6_k", "f16")]
)
def test_quantizing_what_is_quantized_is_refused(tmp_path: Path, stored: str, weights: str) -> None:
    path = engines.tiny_gguf(tmp_path / "model.gguf", format=stored)
    with pytest.raises(InvalidOption, match=f"`weights`.*stored as {stored}.*twice"):
        engines.load(path, weights=weights)


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "f16"])
def test_asking_for_what_a_file_already_holds_changes_nothing(tmp_path: Path, format: str) -> None:
    path = engines.tiny_gguf(tmp_path / "model.gguf", format=format)
    assert logits(path, weights=format) == logits(path)


@pytest.mark.parametrize("weights", ["iq4_nl", "Q4_0", "", "int8", 4, True, ["q4_0"]])
def test_weights_that_floats_cannot_become_are_refused(llama_gguf: Path, weights: Any) -> None:
    with pytest.raises(InvalidOption, match=r"`weights`: expected one of .*q4_0"):
        engines.load(llama_gguf, weights=weights)


def test_a_model_of_mixed_formats_loads_as_it_is(tmp_path: Path) -> None:
    config = checkpoints.tiny_config(bias=True)
    formats = {"v_proj.weight": "q8_0", "k_proj.weight": "f16", "up_proj": "f32"}
    formats["down_proj"] = "q4_1"
    path = checkpoints.gguf_llama(
        tmp_path / "mixed.gguf",
        config,
        checkpoints.random_tensors(config),
        format="q4_0",
        formats=formats,
    )
    engine = engines.load(path)
    assert set(engine.weight_formats) == {"q4_0", "q8_0", "f16", "f32", "q4_1"}
    exact = engines.tiny_gguf(tmp_path / "exact.gguf", bias=True)
    expected = engines.load(exact).logits(IDS)
    assert np.linalg.norm(engine.logits(IDS) - expected) < 0.3 * np.linalg.norm(expected)
    scalar = engines.load(path, isa="scalar", threads=2)
    assert scalar.logits(IDS).tobytes() == engine.logits(IDS).tobytes()


def test_a_q4_k_m_of_a_narrow_model_is_what_its_weights_say(tmp_path: Path) -> None:
    """Rows of 96 are no super-blocks, so that such a file is mostly Q5_0 and Q8_0: five types in
    one layer, and matrices of 24, 96 and 333 rows, which are no whole tiles."""
    sizes = {"hidden": 96, "intermediate": 256, "heads": 4, "kv_heads": 1, "head_dim": 24}
    config = checkpoints.tiny_config(bias=True, vocab=333, **sizes)
    formats = {"v_proj.weight": "q8_0", "lm_head": "q8_0", "k_proj.weight": "q4_1"}
    formats |= {"0.mlp.down_proj": "q6_k", "1.mlp.down_proj": "q4_k"}
    path = checkpoints.gguf_llama(
        tmp_path / "narrow.gguf",
        config,
        checkpoints.random_tensors(config),
        format="q5_0",
        formats=formats,
    )
    engine = engines.load(path)
    assert set(engine.weight_formats) == {"q5_0", "q8_0", "q4_1", "q6_k", "q4_k"}
    expected = f16_cache.reference_logits(*checkpoints.read_gguf(path), IDS)
    assert f16_cache.distance(engine.logits(IDS), expected) < 0.02  # int8 activations, about 1 %
    scalar = engines.load(path, isa="scalar", threads=2)
    assert scalar.logits(IDS).tobytes() == engine.logits(IDS).tobytes()


def test_a_bias_that_is_quantized_is_refused_by_name(tmp_path: Path) -> None:
    config = checkpoints.tiny_config(bias=True)
    path = checkpoints.gguf_llama(
        tmp_path / "model.gguf",
        config,
        checkpoints.random_tensors(config),
        formats={f"{LAYER}.self_attn.v_proj.bias": "q8_0"},
    )
    with pytest.raises(InvalidCheckpoint, match=f"`{LAYER}.self_attn.v_proj.bias`.*found q8_0"):
        engines.load(path)


# ---- context and memory --------------------------------------------------------------------------


@pytest.mark.parametrize("context", [0, -1, 257, 10**30, 1.0, True, "64", [64]])
def test_a_context_that_cannot_be_is_refused(llama_gguf: Path, context: Any) -> None:
    with pytest.raises(InvalidOption, match="`context`: expected an integer from 1 to 256"):
        engines.load(llama_gguf, context=context)


def test_the_context_is_the_model_s_or_what_was_asked(llama_gguf: Path) -> None:
    assert engines.load(llama_gguf).context == 256
    for context in (1, 63, 256):
        assert engines.load(llama_gguf, context=context).context == context


def test_a_shorter_context_changes_no_logits(llama_gguf: Path) -> None:
    assert logits(llama_gguf, context=40) == logits(llama_gguf)


class Memory:
    """Says how much memory is free, counted from what weights and scratch of a model need."""

    def __init__(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, *, kv_cache: str = "f16"
    ) -> None:
        needed = describe(path, kv_cache=kv_cache).memory
        self.position = needed.kv_cache_per_token
        self.weights = needed.weights
        self.base = needed.weights + needed.scratch
        self._monkeypatch = monkeypatch

    def is_free(self, count: int | None) -> None:
        self._monkeypatch.setattr("inferno.loading.available_memory", lambda: count)

    def holds(self, positions: int) -> None:
        """Let there be room for so many positions beside everything else."""
        self.is_free(self.base + positions * self.position)


@pytest.fixture
def memory(llama_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    return Memory(llama_gguf, monkeypatch)


def test_weights_are_estimated_as_they_are_packed(llama_gguf: Path, memory: Memory) -> None:
    estimated = memory.weights
    packed = engines.load(llama_gguf).memory.weights
    assert estimated <= packed <= 1.05 * estimated  # what is aligned takes a little more


def test_memory_that_nobody_knows_is_no_limit(llama_gguf: Path, memory: Memory) -> None:
    memory.is_free(None)
    assert engines.load(llama_gguf).context == 256


@pytest.mark.parametrize(
    ("positions", "context"), [(10_000, 256), (256, 256), (255, 192), (128, 128), (64, 64)]
)
def test_the_context_is_as_many_whole_pages_as_fit(
    llama_gguf: Path, memory: Memory, positions: int, context: int
) -> None:
    memory.holds(positions)
    engine = engines.load(llama_gguf)
    assert engine.context == context
    engine.new_session().feed([1] * context)


@pytest.mark.parametrize("positions", [63, 0, -1_000, -100_000])
def test_less_than_a_page_is_not_enough(llama_gguf: Path, memory: Memory, positions: int) -> None:
    memory.holds(positions)
    with pytest.raises(OutOfMemory, match="MB of free memory"):
        engines.load(llama_gguf)


def test_no_memory_at_all_is_not_enough(llama_gguf: Path, memory: Memory) -> None:
    memory.is_free(0)
    with pytest.raises(OutOfMemory) as caught:
        engines.load(llama_gguf)
    assert "found 0 MB" in caught.value.message
    assert caught.value.hint is not None
    assert "smaller" in caught.value.hint


def test_a_context_that_was_asked_for_is_not_shortened(llama_gguf: Path, memory: Memory) -> None:
    memory.holds(128)
    with pytest.raises(OutOfMemory) as caught:
        engines.load(llama_gguf, context=129)
    assert caught.value.hint is not None
    assert "context=128" in caught.value.hint
    assert 'weights="q4_0"' in caught.value.hint
    assert "smaller model" in caught.value.hint
    parts = ("weights", "cache for 129 tokens", "scratch")
    assert all(part in caught.value.message for part in parts)
    assert engines.load(llama_gguf, context=128).context == 128
    assert engines.load(llama_gguf, context=100).context == 100


def test_weights_that_are_small_already_are_not_to_be_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for format, hint in (("q8_0", "a file of it in smaller weights"), ("q4_0", None)):
        path = engines.tiny_gguf(tmp_path / f"{format}.gguf", format=format)
        memory = Memory(path, monkeypatch)
        memory.holds(64)
        with pytest.raises(OutOfMemory) as caught:
            engines.load(path, context=65)
        assert caught.value.hint is not None
        assert "weights=" not in caught.value.hint
        assert (hint or "context=64") in caught.value.hint
        memory.is_free(None)


def test_a_full_context_names_the_longer_one_of_the_model(llama_gguf: Path, memory: Memory) -> None:
    memory.holds(64)
    session = engines.load(llama_gguf).new_session()
    session.feed([1] * 64)
    with pytest.raises(OverflowError, match="64 of 64 tokens used") as caught:
        session.feed([1])
    assert "context=128" in str(caught.value)


def test_smaller_weights_leave_room_for_a_longer_context(llama_gguf: Path, memory: Memory) -> None:
    memory.holds(64)
    assert engines.load(llama_gguf, weights="q4_0").context > engines.load(llama_gguf).context


@pytest.fixture
def wide_gguf(tmp_path: Path) -> Path:
    """A model whose heads are whole blocks of the cache."""
    return engines.tiny_gguf(tmp_path / "wide.gguf", head_dim=64)


def test_a_cache_of_eight_bits_takes_about_half_and_leaves_room_for_more(
    wide_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {type: Memory(wide_gguf, monkeypatch, kv_cache=type).position for type in CACHES}
    assert taken["f32"] == 2 * taken["f16"]
    assert taken["q8_0"] / taken["f16"] == 34 / 64  # 32 codes and a scale, in place of 32 halves
    for type, position in taken.items():
        assert engines.load(wide_gguf, kv_cache=type).memory.kv_cache_per_token == position
    memory = Memory(wide_gguf, monkeypatch)
    memory.holds(128)
    contexts = [engines.load(wide_gguf, kv_cache=type).context for type in ("f32", "f16", "q8_0")]
    assert contexts == [64, 128, 192]


def test_memory_that_is_short_has_three_remedies(
    wide_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(wide_gguf, monkeypatch)
    memory.holds(128)
    for type, is_named in (("f16", True), ("f32", True), ("q8_0", False)):
        with pytest.raises(OutOfMemory) as caught:
            engines.load(wide_gguf, context=256, kv_cache=type)
        hint = caught.value.hint or ""
        assert re.search(r"load with context=\d+, ", hint)
        assert ('kv_cache="q8_0"' in hint) == is_named
        assert 'weights="q4_0"' in hint
        assert f"{type} cache for 256 tokens" in caught.value.message


def test_heads_that_eight_bits_would_not_make_smaller_are_not_told_to(
    llama_gguf: Path, memory: Memory
) -> None:
    memory.holds(128)  # heads of 16, which a block of 32 pads
    with pytest.raises(OutOfMemory) as caught:
        engines.load(llama_gguf, context=256)
    assert "kv_cache" not in (caught.value.hint or "")


@pytest.mark.parametrize("kind", ["llama_gguf", "qwen2_directory", "mixture"])
def test_no_pass_takes_more_scratch_than_was_estimated(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    mixture = kind == "mixture"
    path = architectures.save(tmp_path, "mixtral") if mixture else request.getfixturevalue(kind)
    estimated = describe(path).memory.scratch
    engine = engines.load(path, threads=2)
    ids = [1] * min(engine.context, 250)
    engine.score(ids)
    engine.embed([ids, ids, ids])
    engine.new_session().feed(ids)
    taken = engine.memory.scratch
    assert 0 < taken <= estimated - loading._SMALL_THINGS_BYTES
    assert estimated - loading._SMALL_THINGS_BYTES < 4 * taken  # and not wildly less
