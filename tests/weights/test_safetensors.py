"""Hugging Face directories: the `safetensors` package as the oracle, then every way to lie."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
from inferno.errors import InfernoError, InvalidCheckpoint, ModelNotFound, UnsupportedModel
from inferno.weights import TokenizerFiles, open_checkpoint
from inferno.weights import safetensors as our_safetensors


@pytest.fixture(autouse=True)
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferno.config.features._supported", lambda: ["llama", "qwen2"])


CONFIG = vars(checkpoints.tiny_config("llama", ties=True))
TENSORS = checkpoints.random_tensors(checkpoints.tiny_config("llama", ties=True))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A sound directory in one file, without torch."""
    from safetensors.numpy import save_file

    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    put(tmp_path / "config.json", CONFIG)
    return tmp_path


def put(path: Path, value: Any) -> None:
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")


def split(model: Path, num_shards: int = 2) -> dict[str, Any]:
    """Turn `model` into several files with an index, and return the index."""
    from safetensors.numpy import save_file

    weight_map = {}
    for shard in range(num_shards):
        names = list(TENSORS)[shard::num_shards]
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        save_file({name: TENSORS[name] for name in names}, model / file)
        weight_map |= dict.fromkeys(names, file)
    (model / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    put(model / "model.safetensors.index.json", index)
    return index


# --------------------------------------------------------------------------- against the oracle


@pytest.mark.parametrize(
    ("dtype", "format"), [("float32", "f32"), ("float16", "f16"), ("bfloat16", "bf16")]
)
def test_tensors_equal_those_the_safetensors_package_reads(
    model: Path, dtype: str, format: str
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    save_file(
        {
            name: torch.from_numpy(values).to(getattr(torch, dtype))
            for name, values in TENSORS.items()
        },
        model / "model.safetensors",
    )
    checkpoint = open_checkpoint(model)
    oracle = load_file(model / "model.safetensors")
    assert set(checkpoint.tensors) == set(oracle)
    for name, theirs in oracle.items():
        ours = checkpoint.tensors[name]
        assert (ours.shape, ours.format) == (tuple(theirs.shape), format)
        assert ours.data.tobytes() == theirs.view(torch.uint8).numpy().tobytes()
        assert not ours.rope_interleaved
    assert checkpoint.bytes == sum(t.nbytes for t in oracle.values())
    assert checkpoint.source == "safetensors"


def test_several_files_open_as_one(model: Path) -> None:
    whole = {name: t.data.tobytes() for name, t in open_checkpoint(model).tensors.items()}
    split(model, 3)
    assert {n: t.data.tobytes() for n, t in open_checkpoint(model).tensors.items()} == whole


def test_what_transformers_saves_opens(qwen2_directory: Path) -> None:
    checkpoint = open_checkpoint(qwen2_directory)
    assert checkpoint.config.model_type == "qwen2"
    assert checkpoint.config.attention_bias, "Qwen2 has biases without a key that says so"
    assert checkpoint.chat_template == checkpoints.CHATML
    assert isinstance(checkpoint.tokenizer_source, TokenizerFiles)
    assert checkpoint.tokenizer_source.path.is_file()


def test_the_dtypes_are_those_of_the_crate() -> None:
    assert {"F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F4"} <= set(
        our_safetensors._DTYPES
    )
    assert not {"Q4_0", "Q8_0", "MXFP4"} & set(our_safetensors._DTYPES)


# --------------------------------------------------------------------------- the files around it


def test_the_name_is_the_directory_or_the_hub_repository(model: Path, tmp_path: Path) -> None:
    assert open_checkpoint(model).config.name == model.name
    snapshot = tmp_path / "models--org--Tiny-1B" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(model / name)
    assert open_checkpoint(snapshot).config.name == "Tiny-1B"


def test_generation_config_adds_stop_ids_and_sampling(model: Path) -> None:
    put(model / "generation_config.json", {"eos_token_id": [2, 0], "temperature": 0.5})
    config = open_checkpoint(model).config
    assert config.eos_token_ids == (2, 0)
    assert config.generation == {"temperature": 0.5}


def test_the_chat_template_comes_from_the_first_place_that_has_one(model: Path) -> None:
    assert open_checkpoint(model).chat_template is None
    put(model / "tokenizer_config.json", {"chat_template": "one"})
    assert open_checkpoint(model).chat_template == "one"
    put(
        model / "tokenizer_config.json",
        {
            "chat_template": [
                {"name": "tool_use", "template": "two"},
                {"name": "default", "template": "three"},
            ]
        },
    )
    assert open_checkpoint(model).chat_template == "three"
    put(model / "chat_template.jinja", "four ✓")
    assert open_checkpoint(model).chat_template == "four ✓"


@pytest.mark.parametrize("template", [7, [{"name": "rag", "template": "x"}], [1], {"a": 1}])
def test_an_odd_chat_template_is_invalid(model: Path, template: Any) -> None:
    put(model / "tokenizer_config.json", {"chat_template": template})
    with pytest.raises(InvalidCheckpoint, match=r"`chat_template` in tokenizer_config\.json"):
        open_checkpoint(model)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": Infinity}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
        "\ufeff{}",
        "<html>",
    ],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_json_that_is_none_is_an_invalid_checkpoint(model: Path, name: str, content: str) -> None:
    put(model / name, content)
    with pytest.raises(InvalidCheckpoint, match=name):
        open_checkpoint(model)


def test_json_that_is_not_utf8_or_too_large_is_invalid(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InvalidCheckpoint, match=r"config\.json"):
        open_checkpoint(model)
    put(model / "config.json", CONFIG)
    monkeypatch.setattr(our_safetensors.read_json, "__defaults__", (10,))
    with pytest.raises(InvalidCheckpoint, match="expected at most 10 bytes"):
        open_checkpoint(model)


def test_a_directory_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"found no config\.json$"):
        open_checkpoint(tmp_path)
    (tmp_path / "tiny.gguf").touch()
    with pytest.raises(ModelNotFound, match=r"GGUF files: tiny\.gguf"):
        open_checkpoint(tmp_path)
    put(tmp_path / "config.json", CONFIG)
    with pytest.raises(ModelNotFound, match=r"expected model\.safetensors or .*found neither"):
        open_checkpoint(tmp_path)


def test_a_weights_file_alone_points_to_its_directory(model: Path) -> None:
    with pytest.raises(ModelNotFound, match="give the directory"):
        open_checkpoint(model / "model.safetensors")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_a_pipe_in_the_directory_does_not_hang(model: Path) -> None:
    os.mkfifo(model / "generation_config.json")
    with pytest.raises(InvalidCheckpoint, match="expected a regular file"):
        open_checkpoint(model)


# --------------------------------------------------------------------------- the index


@pytest.mark.parametrize("target", ["nowhere", None])
@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors",
        "model.safetensors.index.json",
    ],
)
def test_a_link_that_leads_nowhere_is_not_taken_for_no_file(
    model: Path, name: str, target: str | None
) -> None:
    if name == "model.safetensors.index.json":
        split(model)
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(target or name)
    with pytest.raises(ModelNotFound, match=f"Cannot open .*{name}"):
        open_checkpoint(model)


def test_an_index_that_names_a_missing_file_is_invalid(model: Path) -> None:
    split(model)
    (model / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InvalidCheckpoint, match=r"`model-00002-of-00002\.safetensors` is missing"):
        open_checkpoint(model)


def test_an_index_that_names_a_file_no_disk_can_hold_is_invalid(model: Path) -> None:
    index = split(model)
    index["weight_map"] = dict.fromkeys(index["weight_map"], "x" * 100_000)
    put(model / "model.safetensors.index.json", index)
    with pytest.raises(InvalidCheckpoint, match="is missing") as caught:
        open_checkpoint(model)
    assert len(caught.value.message) < 1000


def test_an_index_that_names_a_tensor_the_file_lacks_is_invalid(model: Path) -> None:
    index = split(model)
    index["weight_map"]["lm_head.weight"] = "model-00001-of-00002.safetensors"
    put(model / "model.safetensors.index.json", index)
    with pytest.raises(InvalidCheckpoint, match=r"expected tensor `lm_head\.weight`.*found none"):
        open_checkpoint(model)


@pytest.mark.parametrize(
    "shard", ["../model.safetensors", "/etc/passwd", "a/b", "..", "", 7, None, "a\0b", "a\\b"]
)
def test_an_index_cannot_lead_out_of_its_directory(model: Path, shard: Any) -> None:
    index = split(model)
    index["weight_map"]["lm_head.weight"] = shard
    put(model / "model.safetensors.index.json", index)
    with pytest.raises(InvalidCheckpoint, match="expected the name of a file beside it"):
        open_checkpoint(model)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": [1]}])
def test_an_index_without_a_map_is_invalid(model: Path, index: Any) -> None:
    split(model)
    put(model / "model.safetensors.index.json", index)
    with pytest.raises(InvalidCheckpoint, match="expected `weight_map`"):
        open_checkpoint(model)


# --------------------------------------------------------------------------- hostile headers


def file_of(header: Any, data: bytes = bytes(16), length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: Any = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_the_file_the_lies_start_from_is_sound(model: Path) -> None:
    for header in (
        {"a": entry()},
        {"a": entry(), "__metadata__": {"format": "pt"}},
        {"b": entry(shape=[2], offsets=[8, 16]), "a": entry("F16", [2, 2], [0, 8])},
    ):
        (model / "model.safetensors").write_bytes(file_of(header))
        assert "a" in open_checkpoint(model).tensors
    (model / "model.safetensors").write_bytes(
        file_of(b'{"a":' + json.dumps(entry()).encode() + b"}     ")
    )
    assert open_checkpoint(model).tensors["a"].shape == (4,)


LIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "found an empty file"),
    "seven bytes": (bytes(7), "found 7 bytes"),
    "no header": (file_of(b"", b""), "expected a header of 2 to 0 bytes, found 0"),
    "header longer than the file": (file_of({}, length=2**20), "found 1,048,576"),
    "header length huge": (file_of({}, length=2**64 - 1), "found 18,446,744,073,709,551,615"),
    "header a list": (file_of([]), "begins with {"),
    "header with white space first": (file_of(b" {}"), "begins with {"),
    "header cut": (file_of(b'{"a":'), "expected JSON"),
    "header not UTF-8": (file_of(b'{"\xff": 1}'), "expected JSON"),
    "header nested": (file_of(b'{"a":' * 50_000), "nested too deeply"),
    "key twice": (file_of(b'{"a":1,"a":2}'), "duplicate key"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}), "an object of strings"),
    "entry a list": (file_of({"a": []}), "dtype, shape and data_offsets"),
    "entry with more": (file_of({"a": entry() | {"x": 1}}), "dtype, shape and data_offsets"),
    "name empty": (file_of({"": entry()}), "1 to 1024 characters, found 0"),
    "name long": (file_of({"n" * 1025: entry()}), "found 1,025"),
    "dtype unknown": (file_of({"a": entry("F33")}), "a dtype that safetensors knows, found 'F33'"),
    "dtype of ggml": (file_of({"a": entry("Q8_0")}), "a dtype that safetensors knows"),
    "dtype a list": (file_of({"a": entry(["F32"])}), "a dtype that safetensors knows"),
    "shape negative": (file_of({"a": entry(shape=[-4])}), "a shape of up to 8 sizes"),
    "shape of floats": (file_of({"a": entry(shape=[4.0])}), "a shape of up to 8 sizes"),
    "shape of booleans": (file_of({"a": entry(shape=[True, 4])}), "a shape of up to 8 sizes"),
    "shape deep": (file_of({"a": entry(shape=[1] * 8 + [4])}), "a shape of up to 8 sizes"),
    "shape huge": (file_of({"a": entry(shape=[2**64])}), "a shape of up to 8 sizes"),
    "product overflows": (file_of({"a": entry(shape=[2**62, 4])}), "expected 73,786,"),
    "length differs": (file_of({"a": entry(shape=[3])}), "expected 12 bytes for F32 .*, found 16"),
    "offsets backwards": (file_of({"a": entry(offsets=[16, 0])}), "a begin and an end"),
    "offsets negative": (file_of({"a": entry(offsets=[-16, 0])}), "a begin and an end"),
    "one offset": (file_of({"a": entry(offsets=[0])}), "a begin and an end"),
    "offset beyond": (file_of({"a": entry(offsets=[8, 24])}), "within 16 bytes of data"),
    "overlap": (file_of({"a": entry(), "b": entry(shape=[1], offsets=[12, 16])}), "begin at byte"),
    "hole at the start": (file_of({"a": entry(shape=[2], offsets=[8, 16])}), "begin at offset 0"),
    "hole within": (
        file_of({"a": entry(shape=[1], offsets=[0, 4]), "b": entry(shape=[1], offsets=[8, 12])}),
        "begin at offset 4",
    ),
    "hole at the end": (file_of({"a": entry()}, bytes(20)), "expected .* bytes, found"),
    "nothing but data": (file_of({}), "expected .* bytes, found"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_an_invalid_checkpoint_with_a_hint(model: Path, lie: str) -> None:
    content, message = LIES[lie]
    (model / "model.safetensors").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidCheckpoint, match=message) as caught:
            open_checkpoint(model)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert "expected" in caught.value.message
    assert caught.value.hint


def test_every_lie_is_refused_by_the_safetensors_package_too(tmp_path: Path) -> None:
    """All but our own limits: what the crate takes, we must not call broken."""
    from safetensors import SafetensorError, safe_open

    ours_alone = {"name empty", "name long", "shape deep", "entry with more"}
    for lie, (content, _) in LIES.items():
        if lie in ours_alone:
            continue
        (tmp_path / "lie.safetensors").write_bytes(content)
        with pytest.raises((SafetensorError, OSError, ValueError)):
            safe_open(tmp_path / "lie.safetensors", "np")
            pytest.fail(lie)


@pytest.mark.parametrize(("dtype", "format"), [("I32", "i32"), ("F8_E4M3", "f8_e4m3")])
def test_other_dtypes_are_unsupported(model: Path, dtype: str, format: str) -> None:
    size = {"I32": 4, "F8_E4M3": 16}[dtype]
    (model / "model.safetensors").write_bytes(file_of({"a": entry(dtype, [size])}))
    with pytest.raises(UnsupportedModel, match=rf"`a` is stored as {format}, .*\(supported: f32"):
        open_checkpoint(model)


def test_a_file_cut_anywhere_is_an_invalid_checkpoint(model: Path) -> None:
    whole = file_of({"b": entry(shape=[2], offsets=[8, 16]), "a": entry("F16", [2, 2], [0, 8])})
    path = model / "model.safetensors"
    path.write_bytes(whole)
    open_checkpoint(model).close()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidCheckpoint):
            open_checkpoint(model)


def test_mutated_files_raise_nothing_but_inferno_errors(model: Path) -> None:
    """2,000 directories with one file's bytes flipped, cut, moved or made huge."""
    split(model)
    (model / "model-00002-of-00002.safetensors").rename(model / "model.safetensors")
    put(model / "config.json", CONFIG)
    put(model / "generation_config.json", {"eos_token_id": [2], "temperature": 0.5})
    put(
        model / "tokenizer_config.json",
        {
            "chat_template": [{"name": "default", "template": "x"}],
            "added_tokens_decoder": {"2": {"content": "<|im_end|>", "special": True}},
        },
    )
    small = file_of({"b": entry(shape=[2], offsets=[8, 16]), "a": entry("F16", [2, 2], [0, 8])})
    (model / "model.safetensors").write_bytes(small)
    names = ["config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors"]
    sound = {name: (model / name).read_bytes() for name in names}
    open_checkpoint(model).close()
    generator = np.random.default_rng(0)
    refused = 0
    tracemalloc.start()
    try:
        for index in range(2000):
            name = names[index % len(names)]
            (model / name).write_bytes(mutated(sound[name], generator))
            try:
                open_checkpoint(model).close()
            except InfernoError as error:
                assert error.message.isprintable(), (index, error.message)
                refused += 1
            (model / name).write_bytes(sound[name])
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert refused > 1000


TOKENS = [
    b"null",
    b"-1",
    b"1e999",
    b"[]",
    b"{}",
    b'""',
    b"true",
    b"9" * 30,
    b"18446744073709551615",
    b'"\\ud800"',
    b'"\\u001b[31m"',
    b"[[[[",
    b"0",
    b",",
    b'"F8_E4M3"',
    b"\xff",
    b"\0",
]


def mutated(whole: bytes, generator: np.random.Generator) -> bytes:
    raw = bytearray(whole)
    for _ in range(generator.integers(1, 4)):
        at = int(generator.integers(len(raw))) if raw else 0
        length = int(generator.integers(1, 8))
        choices: list[Callable[[], bytes]] = [
            lambda: generator.bytes(1),
            lambda: TOKENS[generator.integers(len(TOKENS))],
            lambda: b"",
            lambda: bytes(raw[int(generator.integers(len(raw) + 1)) :][:32]),
            lambda: struct.pack("<Q", 2 ** int(generator.integers(64))),
        ]
        raw[at : at + length] = choices[generator.integers(len(choices))]()
        if generator.integers(8) == 0:
            del raw[at:]
    return bytes(raw)
