"""The writer's files, read by the `gguf` package and by our own parser."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.errors import InvalidOption
from inferno.weights.gguf import parse
from inferno.weights.gguf_writer import TensorToWrite, write_gguf
from inferno.weights.mapped_file import MappedFile

METADATA = {
    "general.architecture": "llama",
    "a.bool": True,
    "a.small": 7,
    "a.large": 1 << 40,
    "a.negative": -7,
    "a.float": 0.1,
    "a.text": "héllo",
    "a.empty": "",
    "a.texts": ["a", "", "ü"],
    "a.ints": [3, -1, 2],
    "a.floats": [0.5, -1.25],
    "a.bools": [True, False],
    "a.nothing": [],
}


def bytes_of(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32).astype(np.uint8)


def test_the_gguf_package_reads_keys_and_tensors_back(tmp_path: Path) -> None:
    tensors = {
        "odd.weight": ((3, 5), "f16", bytes_of(30)),  # ends off the alignment
        "q.weight": ((2, 64), "q4_0", bytes_of(72)),
        "v.weight": ((7,), "f32", np.arange(7, dtype="<f4").view(np.uint8)),
    }
    path = tmp_path / "model.gguf"
    write_gguf(
        path,
        METADATA,
        [
            TensorToWrite(name, shape, format, [data[:7], data[7:]])
            for name, (shape, format, data) in tensors.items()
        ],
    )
    reader = gguf.GGUFReader(path)
    for key, value in METADATA.items():
        found = reader.fields[key].contents()
        assert found == (pytest.approx(value, rel=1e-7) if isinstance(value, float) else value), key
    types = {key: reader.fields[key].types for key in METADATA}
    kinds = gguf.GGUFValueType
    assert types["a.small"] == [kinds.UINT32] and types["a.large"] == [kinds.UINT64]
    assert types["a.ints"] == [kinds.ARRAY, kinds.INT32]
    for tensor in reader.tensors:
        shape, format, data = tensors[tensor.name]
        assert tuple(reversed(tensor.shape.tolist())) == shape
        assert tensor.tensor_type.name.lower() == format
        assert tensor.data_offset % 32 == 0
        assert tensor.data.tobytes() == data.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["model.gguf"]


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20),
        st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(width=32, allow_nan=False)
        | st.text(max_size=20)
        | st.lists(st.text(max_size=5), min_size=1, max_size=5)
        | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
        max_size=8,
    )
)
def test_our_own_parser_reads_any_metadata_back(tmp_path_factory, metadata) -> None:
    path = tmp_path_factory.mktemp("any") / "model.gguf"
    write_gguf(path, metadata, [])
    file = MappedFile(path)
    try:
        assert parse(file) == (metadata, {})
    finally:
        file.close()


@pytest.mark.parametrize("count", [0, 71, 73, 1000])
def test_pieces_that_are_not_the_tensor_leave_no_file(tmp_path: Path, count: int) -> None:
    tensor = TensorToWrite("q.weight", (2, 64), "q4_0", [bytes_of(count)])
    with pytest.raises(InvalidOption, match="expected 72 bytes of q4_0"):
        write_gguf(tmp_path / "model.gguf", {}, [tensor])
    assert list(tmp_path.iterdir()) == []


def test_a_failure_in_the_middle_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"before")

    def pieces():
        yield bytes_of(10)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write_gguf(path, {}, [TensorToWrite("q.weight", (2, 64), "q4_0", pieces())])
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["model.gguf"]


@pytest.mark.parametrize("value", [None, {"a": 1}, 1 << 65, [1, "a"], [None], b"bytes", [1 << 63]])
def test_a_value_that_gguf_has_no_type_for_is_named(tmp_path: Path, value) -> None:
    with pytest.raises(InvalidOption, match=r"`a\.key`: expected"):
        write_gguf(tmp_path / "model.gguf", {"a.key": value}, [])
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_readers_refuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="a name of up to 64 bytes"):
        write_gguf(tmp_path / "m.gguf", {}, [TensorToWrite("x" * 65, (1,), "f32", [bytes_of(4)])])
