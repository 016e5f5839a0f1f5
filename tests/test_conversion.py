"""Writing GGUF: what is read back is what was written, by us and by the `gguf` package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import checkpoints
import engines
from inferno import Engine, InvalidCheckpoint, InvalidOption, UnsupportedModel
from inferno.catalogue import CATALOGUE, RepositoryEntry
from inferno.conversion import quantize_once, write_checkpoint
from inferno.tokenizer import tokenizer_for
from inferno.weights import open_checkpoint
from tokenizer_files import spm_directory

IDS = engines.random_ids(40)


def converted(source: Path, path: Path, weights: str | None) -> Path:
    with open_checkpoint(source) as checkpoint:
        write_checkpoint(checkpoint, path, weights, threads=2)
    return path


@pytest.fixture(scope="module")
def biased_directory(tmp_path_factory) -> Path:
    """bf16, biases of q, k, v and o, fewer heads for keys: every row that is reordered."""
    path = tmp_path_factory.mktemp("biased")
    return checkpoints.tiny_llama(path, dtype="bfloat16", bias=True, heads=4, kv_heads=2)


@pytest.fixture(scope="module")
def wide_directory(tmp_path_factory) -> Path:
    """Rows of whole blocks of 256."""
    path = tmp_path_factory.mktemp("wide")
    return checkpoints.tiny_llama(path, hidden=256, intermediate=512, heads=4, kv_heads=2)


@pytest.mark.parametrize("weights", [None, "f16", "q8_0", "q4_0", "q4_k_m"])
@pytest.mark.parametrize("kind", [f"{k}_directory" for k in ("llama", "qwen2", "biased", "wide")])
def test_a_written_file_gives_the_bits_of_quantizing_while_loading(
    tmp_path, request, kind, weights
):
    directory = request.getfixturevalue(kind)
    path = converted(directory, tmp_path / "model.gguf", weights)
    ours, theirs = (
        engines.load(directory, weights=weights),
        engines.load(path, weights=weights),
    )
    assert ours.logits(IDS).tobytes() == theirs.logits(IDS).tobytes()
    assert ours.logits(IDS).tobytes() == engines.load(path).logits(IDS).tobytes()
    assert ours.stop_ids == theirs.stop_ids and ours.num_tokens == theirs.num_tokens
    assert ours.template.template == theirs.template.template
    assert ours.config.generation == theirs.config.generation


def test_the_gguf_package_reads_what_was_written(tmp_path, llama_directory):
    """Names, shapes, types and values, as it and llama.cpp have them."""
    import gguf

    path = converted(llama_directory, tmp_path / "model.gguf", "q4_0")
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "llama" and fields["general.file_type"] == 2
    assert fields["llama.block_count"] == 2 and fields["llama.attention.head_count_kv"] == 2
    assert fields["tokenizer.ggml.model"] == "gpt2" and fields["tokenizer.ggml.pre"] == "gpt-2"
    assert len(fields["tokenizer.ggml.tokens"]) == 320
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert {name: t.tensor_type.name for name, t in tensors.items() if "blk" not in name} == {
        "token_embd.weight": "Q8_0",
        "output.weight": "Q4_0",
        "output_norm.weight": "F32",
    }
    assert all(tensor.data_offset % 32 == 0 for tensor in reader.tensors)
    with open_checkpoint(llama_directory) as checkpoint:
        stored = checkpoint.tensors["model.layers.1.mlp.down_proj.weight"]
        values = stored.data.view("<f4").reshape(stored.shape)
        expected = gguf.quantize(values, gguf.GGMLQuantizationType.Q4_0)
    assert tensors["blk.1.ffn_down.weight"].data.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("weights", "number", "down"),
    [("q4_k_m", 15, "Q6_K"), ("q4_k_s", 14, "Q4_K"), ("q3_k_l", 13, "Q5_K"), ("q6_k", 18, "Q6_K")],
)
def test_a_mix_is_written_as_its_recipe_has_it(tmp_path, wide_directory, weights, number, down):
    import gguf

    path = converted(wide_directory, tmp_path / "model.gguf", weights)
    reader = gguf.GGUFReader(path)
    assert reader.fields["general.file_type"].contents() == number
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert types["blk.1.ffn_down.weight"] == down
    assert types["blk.1.ffn_up.weight"] == f"{weights[:4]}".upper()
    assert types["output.weight"] == "Q6_K" and types["output_norm.weight"] == "F32"
    again = converted(path, tmp_path / "again.gguf", None)  # and stays what it was
    assert gguf.GGUFReader(again).fields["general.file_type"].contents() == number


def test_rows_of_q_and_k_are_in_the_order_that_llama_cpp_reads(tmp_path, llama_directory):
    import gguf

    path = converted(llama_directory, tmp_path / "model.gguf", "f32")
    (q,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.attn_q.weight"]
    with open_checkpoint(llama_directory) as checkpoint:
        stored = checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"]
        values = stored.data.view("<f4").reshape(stored.shape)
    # The converter's own words: (heads, 2, head_dim / 2, columns), the middle two exchanged.
    expected = values.reshape(4, 2, 8, 64).swapaxes(1, 2).reshape(64, 64)
    np.testing.assert_array_equal(q.data, expected)


def test_a_gguf_file_can_be_written_again(tmp_path, llama_gguf):
    path = converted(llama_gguf, tmp_path / "model.gguf", "q8_0")
    expected = engines.load(llama_gguf, weights="q8_0").logits(IDS)
    assert engines.load(path).logits(IDS).tobytes() == expected.tobytes()


def test_what_is_quantized_already_is_not_rounded_again(tmp_path):
    source = engines.tiny_gguf(tmp_path / "q8.gguf", format="q8_0")
    with pytest.raises(InvalidOption, match="rounded twice"):
        converted(source, tmp_path / "model.gguf", "q4_0")
    assert not (tmp_path / "model.gguf").exists()


def test_rows_that_are_no_whole_blocks_are_refused(tmp_path):
    options = {"hidden": 40, "intermediate": 50, "heads": 2, "kv_heads": 1, "head_dim": 24}
    source = engines.tiny_gguf(tmp_path / "odd.gguf", **options)
    with pytest.raises(UnsupportedModel, match="expected rows of whole blocks of 32"):
        converted(source, tmp_path / "model.gguf", "q8_0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.gguf"]


def test_a_tensor_that_is_missing_is_told_before_anything_is_written(tmp_path, llama_directory):
    from safetensors.numpy import load_file, save_file

    source = tmp_path / "source"
    shutil.copytree(llama_directory, source)
    tensors = load_file(source / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match=r"`model\.norm\.weight`"):
        converted(source, tmp_path / "model.gguf", None)
    assert not (tmp_path / "model.gguf").exists()


def test_what_gguf_cannot_say_is_refused(tmp_path, llama_directory):
    """It has room for the ends that the tokenizer knows by name, and for no list of others."""
    source = tmp_path / "source"
    shutil.copytree(llama_directory, source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "eos_token_id": [2, 5, 9]}))
    with pytest.raises(UnsupportedModel, match="`eos_token_id`: GGUF has no words"):
        converted(source, tmp_path / "model.gguf", None)


# In the cache -------------------------------------------------------------------------------------


@pytest.fixture
def named(tmp_path, monkeypatch, llama_directory) -> str:
    """A name of the catalogue for floats that are quantized while they are loaded."""
    from inferno import hub

    entry = RepositoryEntry(
        name="tiny",
        bytes=1,
        licence="MIT",
        repository="org/tiny",
        weights="q4_0",
        sampling={"temperature": 0.5},
    )
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(hub.repositories, "cached", lambda reference: llama_directory)
    return "tiny"


def test_a_named_model_is_loaded_in_the_weights_of_its_entry(named, llama_directory):
    engine = Engine.load(named)
    assert engine.weight_formats == ("q4_0", "q8_0")
    assert (
        engine.logits(IDS).tobytes()
        == engines.load(llama_directory, weights="q4_0").logits(IDS).tobytes()
    )
    assert Engine.load(named, weights="f32").weight_formats == ("f32",)


def test_a_quantized_copy_is_what_the_name_then_means(named, llama_directory, monkeypatch):
    from inferno import hub

    expected = Engine.load(named).logits(IDS).tobytes()
    path = quantize_once(named, llama_directory, None)
    monkeypatch.setattr(hub.repositories, "cached", lambda reference: None)  # the floats are gone
    engine = Engine.load(named)
    assert engine.logits(IDS).tobytes() == expected
    assert (engine.config.name, engine.config.generation["temperature"]) == ("tiny", 0.5)
    modified = path.stat().st_mtime_ns
    assert quantize_once(named, llama_directory, "q4_0") == path
    assert path.stat().st_mtime_ns == modified  # once


def test_a_disk_that_is_full_leaves_no_copy(named, llama_directory, monkeypatch):
    import errno
    import os

    from inferno import DownloadFailed, hub

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DownloadFailed, match="No space left"):
            quantize_once(named, llama_directory, None)
    folder = hub.quantized_path(named, "q4_0").parent
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("weights", [None, "q4_7"])
def test_a_copy_needs_weights_that_can_be(tmp_path, llama_directory, weights, monkeypatch):
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path))
    with pytest.raises(InvalidOption):
        quantize_once("hf.co/org/tiny", llama_directory, weights)


# Vocabularies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["leftmost", "rightmost"])
def test_a_sentencepiece_like_tokenizer_json_gives_the_same_ids_as_gguf(tmp_path, order):
    """Llama's kind; `rightmost` ranks the cuts of a piece in an order that scores cannot say."""
    directory = spm_directory(tmp_path / "spm", order)
    path = converted(directory, tmp_path / "model.gguf", None)
    with open_checkpoint(directory) as a, open_checkpoint(path) as b:
        ours, theirs = tokenizer_for(a), tokenizer_for(b)
        assert ("tokenizer.ggml.merges" in b.tokenizer_source) == (order == "rightmost")
    texts = ["the rain and the thing", " a  b\n\tc", "héllo 🦙", "<s>the</s> x", "", "ation"]
    for text in texts:
        for special in (False, True):
            assert ours.encode(text, special=special) == theirs.encode(text, special=special)
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.byte_fallback": False}, "outside the vocabulary"),
        (
            {
                "pre_tokenizer": {
                    "type": "Metaspace",
                    "replacement": "▁",
                    "prepend_scheme": "first",
                    "split": False,
                }
            },
            "writes spaces",
        ),
        ({"added_tokens.0.lstrip": True}, "takes part of its neighbours"),
    ],
)
def test_a_tokenizer_that_gguf_cannot_say_is_refused(tmp_path, change, message):
    directory = spm_directory(tmp_path / "spm", "leftmost")
    file = directory / "tokenizer.json"
    data = json.loads(file.read_text("utf-8"))
    for where, value in change.items():
        *path, last = where.split(".")
        inner = data
        for part in path:
            inner = inner[int(part)] if part.isdecimal() else inner[part]
        inner[last] = value
    file.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UnsupportedModel, match=f"GGUF has no words for .*{message}"):
        converted(directory, tmp_path / "model.gguf", None)
