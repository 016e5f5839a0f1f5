"""The GGUF reader: the `gguf` package as the oracle, then every way a file can lie."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
from inferno.errors import InfernoError, InvalidCheckpoint, ModelNotFound, UnsupportedModel
from inferno.weights import FORMATS, SUPPORTED_FORMATS, open_checkpoint
from inferno.weights.gguf import parse
from inferno.weights.gguf_names import huggingface_name
from inferno.weights.mapped_file import MappedFile


@pytest.fixture(autouse=True)
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferno.config.features._supported", lambda: ["llama", "qwen2"])


def tiny_gguf(
    path: Path,
    model_type: str = "llama",
    *,
    bias: bool = False,
    ties: bool = False,
    split_max_tensors: int = 0,
    format: str = "f32",
) -> Path:
    sizes = checkpoints.sizes_for(format)
    config = checkpoints.tiny_config(model_type, bias=bias, ties=ties, **sizes)
    return checkpoints.gguf_llama(
        path / "tiny.gguf",
        config,
        checkpoints.random_tensors(config),
        format=format,
        split_max_tensors=split_max_tensors,
    )


# --------------------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("format", SUPPORTED_FORMATS)
def test_tensors_equal_those_the_gguf_package_reads(tmp_path: Path, format: str) -> None:
    import gguf

    path = tiny_gguf(tmp_path, format=format)
    checkpoint = open_checkpoint(path)
    oracle = gguf.GGUFReader(path).tensors
    assert len(checkpoint.tensors) == len(oracle)
    for theirs in oracle:
        ours = checkpoint.tensors[checkpoints.hugging_face_name(theirs.name)]
        assert ours.shape == tuple(int(size) for size in reversed(theirs.shape))
        assert ours.format == theirs.tensor_type.name.lower()
        assert ours.data.tobytes() == theirs.data.tobytes()
    assert checkpoint.bytes == sum(int(theirs.n_bytes) for theirs in oracle)
    assert {t.format for t in checkpoint.tensors.values()} == {"f32", format}


def test_quantized_bytes_are_those_of_the_quantizer(tmp_path: Path) -> None:
    import gguf

    config = checkpoints.tiny_config("qwen2")
    tensors = checkpoints.random_tensors(config)
    path = checkpoints.gguf_llama(tmp_path / "tiny.gguf", config, tensors, format="q4_1")
    name = "model.layers.1.mlp.up_proj.weight"
    expected = gguf.quants.quantize(tensors[name], gguf.GGMLQuantizationType.Q4_1)
    assert open_checkpoint(path).tensors[name].data.tobytes() == expected.tobytes()


def test_metadata_of_every_type_reads_back(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "types.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    scalars = {
        "uint8": 255,
        "int8": -128,
        "uint16": 65535,
        "int16": -32768,
        "uint32": 2**32 - 1,
        "int32": -(2**31),
        "uint64": 2**64 - 1,
        "int64": -(2**63),
        "float32": 0.5,
        "float64": 0.1,
        "bool": True,
        "string": "Ünïcode ✓\0",
    }
    arrays = {
        "ints": [1, -2, 3],
        "floats": [0.5, 1.5],
        "bools": [True, False],
        "strings": ["", "ä", "x" * 1000],
    }
    for kind, value in scalars.items():
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
    for kind, values in arrays.items():
        writer.add_array(f"x.{kind}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata, places = parse(MappedFile(path))
    for kind, value in (scalars | arrays).items():
        assert metadata[f"x.{kind}"] == value
        assert type(metadata[f"x.{kind}"]) is type(value)
    assert places == {}


def test_formats_have_ggmls_ids_and_sizes() -> None:
    import gguf

    ours = {f.ggml_id: f for f in FORMATS.values()}
    for kind, (block, block_bytes) in gguf.GGML_QUANT_SIZES.items():
        if kind.name == "Q8_1":  # never in files; the package has the 40 bytes of years ago
            continue
        assert (ours[kind.value].block, ours[kind.value].block_bytes) == (block, block_bytes)
        assert ours[kind.value].name == kind.name.lower()
    with_id = [f for f in FORMATS.values() if f.ggml_id is not None]
    assert len({f.ggml_id for f in with_id}) == len(with_id)


@pytest.mark.parametrize("architecture", ["LLAMA", "QWEN2"])
def test_names_are_the_inverse_of_the_gguf_packages_names(architecture: str) -> None:
    import gguf

    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, architecture), 3)
    shapes = checkpoints.shapes(checkpoints.tiny_config(architecture.lower(), bias=True, layers=3))
    for name in shapes:
        stem, kind = name.rsplit(".", 1)
        assert huggingface_name(f"{names.get_name(stem)}.{kind}") == name
    assert huggingface_name("blk.0.something.weight") == "blk.0.something.weight"
    assert huggingface_name("blk.00.attn_q.weight") == "blk.00.attn_q.weight"


def test_only_queries_and_keys_of_llama_are_interleaved(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    llama = open_checkpoint(tiny_gguf(tmp_path, bias=True))
    interleaved = {name for name, t in llama.tensors.items() if t.rope_interleaved}
    assert interleaved == {
        f"model.layers.{layer}.self_attn.{name}.{kind}"
        for layer in (0, 1)
        for name in ("q_proj", "k_proj")
        for kind in ("weight", "bias")
    }
    qwen2 = open_checkpoint(tiny_gguf(tmp_path / "q", "qwen2"))
    assert not any(t.rope_interleaved for t in qwen2.tensors.values())
    assert qwen2.config.attention_bias and llama.config.attention_bias


def test_a_file_without_output_weight_ties_its_embeddings(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path, ties=True))
    assert checkpoint.config.tie_word_embeddings
    assert "lm_head.weight" not in checkpoint.tensors
    assert checkpoint.chat_template == checkpoints.CHATML
    assert checkpoint.tokenizer_source["tokenizer.ggml.model"] == "gpt2"  # type: ignore[call-overload]


def test_frequency_factors_move_to_the_config(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = checkpoints.tiny_config(rope_scaling=scaling)
    path = checkpoints.gguf_llama(
        tmp_path / "tiny.gguf", config, checkpoints.random_tensors(config)
    )
    checkpoint = open_checkpoint(path)
    found = checkpoint.config.rope_scaling
    assert found is not None and found["rope_type"] == "frequency_factors"
    assert len(found["factors"]) == config.head_dim // 2
    assert max(found["factors"]) == pytest.approx(8.0)
    assert "rope_freqs.weight" not in checkpoint.tensors


# --------------------------------------------------------------------------- split sets


def test_a_split_set_opens_as_one_model(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    whole = open_checkpoint(tiny_gguf(tmp_path / "one"))
    first = tiny_gguf(tmp_path, split_max_tensors=5)
    assert first.name == "tiny-00001-of-00005.gguf"
    split = open_checkpoint(first)
    assert list(split.tensors) == list(whole.tensors)
    for name, tensor in whole.tensors.items():
        assert split.tensors[name].data.tobytes() == tensor.data.tobytes()
    assert split.bytes == whole.bytes


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    first = tiny_gguf(tmp_path, split_max_tensors=5)
    first.with_name("tiny-00003-of-00005.gguf").unlink()
    with pytest.raises(InvalidCheckpoint, match=r"`tiny-00003-of-00005\.gguf` is missing"):
        open_checkpoint(first)


def test_a_later_shard_points_to_the_first(tmp_path: Path) -> None:
    first = tiny_gguf(tmp_path, split_max_tensors=5)
    with pytest.raises(InvalidCheckpoint, match=r"found number 2\n.*`tiny-00001-of-00005\.gguf`"):
        open_checkpoint(first.with_name("tiny-00002-of-00005.gguf"))


def test_a_renamed_shard_is_noticed(tmp_path: Path) -> None:
    first = tiny_gguf(tmp_path, split_max_tensors=5)
    with pytest.raises(InvalidCheckpoint, match=r"expected split.count = 1 .*, found 5"):
        open_checkpoint(first.rename(tmp_path / "model.gguf"))
    (tmp_path / "one").mkdir()
    whole = tiny_gguf(tmp_path / "one")
    with pytest.raises(InvalidCheckpoint, match=r"expected split.count = 2 .*, found 1"):
        open_checkpoint(whole.rename(tmp_path / "model-00001-of-00002.gguf"))


def test_shards_in_the_wrong_order_are_noticed(tmp_path: Path) -> None:
    first = tiny_gguf(tmp_path, split_max_tensors=5)
    second, third = (first.with_name(f"tiny-0000{n}-of-00005.gguf") for n in (2, 3))
    second.write_bytes(third.read_bytes())
    with pytest.raises(InvalidCheckpoint, match=r"expected split\.no = 1, found 2"):
        open_checkpoint(first)


# --------------------------------------------------------------------------- hostile files

U8, U32, F32, BOOL, STRING, ARRAY = 0, 4, 6, 7, 8, 9
HUGE = 2**64 - 1


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def array(kind: int, count: int, payload: bytes) -> bytes:
    return u32(kind) + u64(count) + payload


@dataclass
class Info:
    name: str | bytes
    dims: tuple[int, ...]  # innermost first, as in the file
    kind: int = 0
    offset: int | None = None  # None: behind the one before
    rank: int | None = None

    def nbytes(self) -> int:
        return 4 * int(np.prod(self.dims, dtype=object))


@dataclass
class Gguf:
    """A GGUF file, part by part, so that each part can be made to lie."""

    magic: bytes = b"GGUF"
    version: int = 3
    num_tensors: int | None = None
    num_keys: int | None = None
    metadata: list[tuple[str | bytes, int, bytes]] = field(
        default_factory=lambda: [
            ("general.architecture", STRING, text("llama")),
            ("general.alignment", U32, u32(32)),
            ("llama.block_count", U32, u32(1)),
            ("llama.context_length", U32, u32(16)),
            ("llama.embedding_length", U32, u32(8)),
            ("llama.feed_forward_length", U32, u32(8)),
            ("llama.attention.head_count", U32, u32(1)),
            ("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
            ("tokenizer.ggml.tokens", ARRAY, array(STRING, 2, text("a") + text("bc"))),
            ("tokenizer.ggml.token_type", ARRAY, array(U32, 2, u32(1) + u32(3))),
            ("tokenizer.ggml.add_bos_token", BOOL, b"\x01"),
        ]
    )
    infos: list[Info] = field(
        default_factory=lambda: [
            Info("token_embd.weight", (8, 2)),
            Info("blk.0.attn_q.weight", (8, 8)),
            Info("output_norm.weight", (8,)),
        ]
    )
    data: bytes | None = None

    def set(self, key: str, kind: int, payload: bytes) -> None:
        self.metadata = [entry for entry in self.metadata if entry[0] != key]
        self.metadata.append((key, kind, payload))

    def to_bytes(self) -> bytes:
        parts = [self.magic, u32(self.version)]
        parts.append(u64(len(self.infos) if self.num_tensors is None else self.num_tensors))
        parts.append(u64(len(self.metadata) if self.num_keys is None else self.num_keys))
        parts += [text(key) + u32(kind) + payload for key, kind, payload in self.metadata]
        next_offset = 0
        for info in self.infos:
            offset = next_offset if info.offset is None else info.offset
            rank = len(info.dims) if info.rank is None else info.rank
            parts.append(text(info.name) + u32(rank) + b"".join(map(u64, info.dims)))
            parts.append(u32(info.kind) + u64(offset))
            next_offset = -(-(offset + info.nbytes()) // 32) * 32
        head = b"".join(parts)
        data = bytes(range(256)) * 2 if self.data is None else self.data
        return head + bytes(-len(head) % 32) + data


def write(path: Path, file: Gguf | bytes) -> Path:
    path = path / "hostile.gguf"
    path.write_bytes(file if isinstance(file, bytes) else file.to_bytes())
    return path


def test_the_file_the_lies_start_from_is_sound(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write(tmp_path, Gguf()))
    assert checkpoint.config.vocab_size == 2
    assert checkpoint.config.name == "hostile"
    assert checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"].data[:3].tolist() == [
        64,
        65,
        66,
    ]


def test_version_2_reads_the_same(tmp_path: Path) -> None:
    assert len(open_checkpoint(write(tmp_path, Gguf(version=2))).tensors) == 3


def test_a_larger_alignment_moves_the_data(tmp_path: Path) -> None:
    file = Gguf(infos=[Info("token_embd.weight", (8, 2))])
    file.set("general.alignment", U32, u32(1024))
    file.data = bytes(1024) + b"".join(struct.pack("<f", value) for value in range(16))
    raw = file.to_bytes()
    head = len(raw) - len(file.data)
    raw = raw[:head] + bytes(1024 - head) + file.data[1024:]
    data = open_checkpoint(write(tmp_path, raw)).tensors["model.embed_tokens.weight"].data
    assert data.view("<f4").tolist() == list(range(16))


LIES: dict[str, tuple[Callable[[Gguf], Any], str]] = {
    "magic": (lambda f: setattr(f, "magic", b"GGUG"), "expected a GGUF file"),
    "version 0": (lambda f: setattr(f, "version", 0), "expected 2 or 3, found 0"),
    "tensor count": (lambda f: setattr(f, "num_tensors", HUGE), "the number of tensors: expected"),
    "tensor count + 1": (lambda f: setattr(f, "num_tensors", 4), "tensor 3"),
    "key count": (lambda f: setattr(f, "num_keys", HUGE), "the number of metadata entries"),
    "key length": (
        lambda f: f.metadata.insert(0, (b"", 0, b"")) or setattr(f, "num_keys", 1),
        "expected a new name, found none",
    ),
    "key twice": (
        lambda f: f.metadata.append(("llama.block_count", U32, u32(2))),
        "expected a new name, found `llama.block_count`",
    ),
    "key not UTF-8": (lambda f: f.metadata.append((b"a\xff", U32, u32(2))), "expected UTF-8"),
    "key too long": (
        lambda f: f.metadata.append(("k" * 65536, U32, u32(2))),
        "expected at most 65,535 bytes",
    ),
    "value type": (lambda f: f.set("x", 13, b""), "a value type from 0 to 12, found 13"),
    "string length": (lambda f: f.set("x", STRING, u64(HUGE)), "expected at most 16,777,216"),
    "string cut": (lambda f: f.set("x", STRING, u64(100_000)), "expected 100,000 bytes"),
    "string not UTF-8": (lambda f: f.set("x", STRING, text(b"\xc3(")), "expected UTF-8"),
    "bool": (lambda f: f.set("x", BOOL, b"\x02"), "booleans of 0 or 1"),
    "array length": (lambda f: f.set("x", ARRAY, array(F32, HUGE, b"")), "expected 73,786,"),
    "array of strings length": (
        lambda f: f.set("x", ARRAY, array(STRING, HUGE, b"")),
        "expected 147,573,",
    ),
    "array string length": (
        lambda f: f.set("x", ARRAY, array(STRING, 1, u64(HUGE))),
        "string 0 of 1",
    ),
    "array string not UTF-8": (
        lambda f: f.set("x", ARRAY, array(STRING, 1, text(b"\xff"))),
        "string 0: expected UTF-8",
    ),
    "array of arrays": (
        lambda f: f.set("x", ARRAY, array(ARRAY, 1, array(U8, 0, b""))),
        "found an array of arrays",
    ),
    "array of unknown": (lambda f: f.set("x", ARRAY, array(99, 1, b"")), "found 99"),
    "alignment 0": (lambda f: f.set("general.alignment", U32, u32(0)), "a power of two, found 0"),
    "alignment 48": (lambda f: f.set("general.alignment", U32, u32(48)), "power of two, found 48"),
    "alignment text": (lambda f: f.set("general.alignment", STRING, text("32")), "found '32'"),
    "alignment 2^31": (
        lambda f: f.set("general.alignment", U32, u32(2**31)),
        "found a data section of 0 bytes",
    ),
    "tensor twice": (
        lambda f: f.infos.append(Info("output_norm.weight", (8,))),
        "expected a new name, found `output_norm.weight`",
    ),
    "tensor twice by its other name": (
        lambda f: f.infos.append(Info("model.norm.weight", (8,))),
        "`model.norm.weight` is there twice",
    ),
    "tensor unnamed": (lambda f: f.infos.append(Info("", (8,))), "expected a new name"),
    "tensor name long": (lambda f: f.infos.append(Info("n" * 65, (8,))), "at most 64 bytes"),
    "tensor name not UTF-8": (lambda f: f.infos.append(Info(b"\xff", (8,))), "expected UTF-8"),
    "rank 0": (lambda f: f.infos.append(Info("x", ())), "1 to 4 dimensions, found 0"),
    "rank 5": (lambda f: f.infos.append(Info("x", (1,) * 5)), "1 to 4 dimensions, found 5"),
    "rank huge": (lambda f: f.infos.append(Info("x", (1,), rank=2**32 - 1)), "4,294,967,295"),
    "dimension 0": (lambda f: f.infos.append(Info("x", (8, 0))), "no dimension of zero"),
    "dimension huge": (
        lambda f: f.infos.append(Info("x", (HUGE,), offset=384)),
        "bytes of data at offset 384",
    ),
    "product overflows": (
        lambda f: f.infos.append(Info("x", (2**32, 2**32), offset=384)),
        "expected 73,786,976,294,838,206,464 bytes of data",
    ),
    "product wraps to 8": (
        lambda f: f.infos.append(Info("x", (2**62 + 2, 2**2), offset=384)),
        "bytes of data",
    ),
    "tensor type": (lambda f: f.infos.append(Info("x", (8,), 42)), "ggml knows, found id 42"),
    "part of a block": (
        lambda f: f.infos.append(Info("x", (8, 4), 8)),
        "whole q8_0 blocks of 32 weights, found rows of 8",
    ),
    "offset misaligned": (
        lambda f: f.infos.append(Info("x", (8,), offset=388)),
        "aligned to 32, found 388",
    ),
    "offset beyond": (
        lambda f: f.infos.append(Info("x", (8,), offset=512)),
        "found a data section of 512 bytes",
    ),
    "offset huge": (lambda f: f.infos.append(Info("x", (8,), offset=2**64 - 32)), "data section"),
    "overlap": (lambda f: f.infos.append(Info("x", (8,), offset=64)), "begin at byte .* or later"),
    "same place": (lambda f: f.infos.append(Info("x", (8, 2), offset=0)), "begin at byte"),
    "data missing": (lambda f: setattr(f, "data", b""), "found a data section of 0 bytes"),
    "chat template a number": (
        lambda f: f.set("tokenizer.chat_template", U32, u32(1)),
        "expected a string, found 1",
    ),
    "split of none": (lambda f: f.set("split.count", U32, u32(3)), "expected split.count = 1"),
    "split count text": (lambda f: f.set("split.count", STRING, text("1")), "expected an integer"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_an_invalid_checkpoint_with_a_hint(tmp_path: Path, lie: str) -> None:
    tell, message = LIES[lie]
    file = Gguf()
    tell(file)
    with pytest.raises(InvalidCheckpoint, match=message) as caught:
        open_checkpoint(write(tmp_path, file))
    assert "expected" in caught.value.message or "twice" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(("kind", "name"), [(16, "iq2_xxs"), (34, "tq1_0"), (31, "q4_0_4_4")])
def test_a_format_without_kernels_is_named_with_its_tensor(
    tmp_path: Path, kind: int, name: str
) -> None:
    file = Gguf(infos=[Info("token_embd.weight", (256, 2), kind)])
    with pytest.raises(
        UnsupportedModel,
        match=f"`model.embed_tokens.weight` is stored as {name}, "
        r".*\(supported: f32, f16, .*, q4_k, .*, mxfp4\)",
    ):
        open_checkpoint(write(tmp_path, file))


@pytest.mark.parametrize(
    ("version", "message"), [(1, "GGUF version 1"), (4, "GGUF version 4"), (3 << 24, "big-endian")]
)
def test_other_versions_are_unsupported(tmp_path: Path, version: int, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        open_checkpoint(write(tmp_path, Gguf(version=version)))


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html>", "web page"),
        (b"PK\x03\x04", "zip archive"),
        (b"tjgg", "before GGUF"),
    ],
)
def test_what_people_take_for_a_model_is_recognized(
    tmp_path: Path, content: bytes, hint: str
) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        open_checkpoint(write(tmp_path, content))
    assert hint in str(caught.value.hint)


def test_a_file_cut_anywhere_is_an_invalid_checkpoint(tmp_path: Path) -> None:
    whole = Gguf(data=bytes(64 + 256 + 32)).to_bytes()
    open_checkpoint(write(tmp_path, whole)).close()
    for length in range(len(whole)):
        with pytest.raises(InvalidCheckpoint):
            open_checkpoint(write(tmp_path, whole[:length]))


@pytest.mark.parametrize(
    "lie",
    [
        "array length",
        "array of strings length",
        "string length",
        "tensor count",
        "key count",
        "dimension huge",
        "alignment 2^31",
    ],
)
def test_a_claimed_length_allocates_nothing(tmp_path: Path, lie: str) -> None:
    file = Gguf()
    LIES[lie][0](file)
    path = write(tmp_path, file)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidCheckpoint):
            open_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_metadata_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferno.weights.gguf.MAX_METADATA_BYTES", 1 << 20)
    file = Gguf()
    file.set("x", ARRAY, array(U8, 2 << 20, bytes(2 << 20)))
    with pytest.raises(InvalidCheckpoint, match="found the limit of 1 MB for metadata"):
        open_checkpoint(write(tmp_path, file))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_nothing_but_a_regular_file_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="No such file"):
        open_checkpoint(tmp_path / "none.gguf")
    with pytest.raises(ModelNotFound):
        open_checkpoint("a\0b")
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(InfernoError, match="expected a regular file"):
        open_checkpoint(pipe)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_files_raise_nothing_but_inferno_errors(tmp_path: Path, seed: int) -> None:
    """1,000 files with bytes flipped, cut, moved, and lengths made huge: no crash, no hoarding."""
    whole = Gguf().to_bytes()
    generator = np.random.default_rng(seed)
    refused = 0
    tracemalloc.start()
    try:
        for index in range(1000):
            path = write(tmp_path, mutated(whole, generator))
            try:
                open_checkpoint(path).close()
            except InfernoError as error:
                assert error.message.isprintable(), (seed, index, error.message)
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert refused > 500


def mutated(whole: bytes, generator: np.random.Generator) -> bytes:
    raw = bytearray(whole)
    for _ in range(generator.integers(1, 4)):
        at = int(generator.integers(len(raw))) if raw else 0
        match generator.integers(6):
            case 0:
                raw[at : at + 1] = generator.bytes(1)
            case 1:
                del raw[at:]
            case 2:
                huge = [2**64 - 1, 2**63, 2**32, 2**31 - 1, len(raw), 0][generator.integers(6)]
                raw[at : at + 8] = u64(huge)
            case 3:
                raw[at : at + 4] = u32(int(generator.integers(16)))
            case 4:
                start = int(generator.integers(len(raw) + 1))
                raw[at:at] = raw[start : start + int(generator.integers(64))]
            case 5:
                del raw[at : at + int(generator.integers(1, 16))]
    return bytes(raw)


def test_a_damaged_file_is_named_with_its_folder_so_that_it_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for content in (bytes(1000), b"GGUF" + bytes([3, 0, 0, 0]) + bytes([255]) * 1000):
        path.write_bytes(content)
        with pytest.raises(InvalidCheckpoint) as caught:
            open_checkpoint(path)
        assert str(path) in caught.value.message and "delete it" in str(caught.value.hint)
