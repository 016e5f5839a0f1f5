"""Checkpoint: what a model file asks of it, whatever container it came from."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import checkpoints
from inferno.errors import InvalidCheckpoint, OutOfMemory
from inferno.weights import Checkpoint, open_checkpoint

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(autouse=True)
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferno.config.features._supported", lambda: ["llama", "qwen2"])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    config = checkpoints.tiny_config(ties=True)
    return open_checkpoint(
        checkpoints.gguf_llama(tmp_path / "tiny.gguf", config, checkpoints.random_tensors(config))
    )


def test_a_tensor_of_the_right_shape_is_returned(checkpoint: Checkpoint) -> None:
    assert checkpoint.tensor(Q_PROJ, (64, 64)) is checkpoint.tensors[Q_PROJ]


def test_a_wrong_shape_says_what_was_expected_and_why(checkpoint: Checkpoint) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        checkpoint.tensor(Q_PROJ, (32, 64))
    assert caught.value.message == f"Tensor `{Q_PROJ}`: expected shape (32, 64), found (64, 64)"
    assert "num_key_value_heads = 2" in str(caught.value.hint)


def test_a_missing_tensor_names_those_that_are_close(checkpoint: Checkpoint) -> None:
    with pytest.raises(InvalidCheckpoint, match="is missing") as caught:
        checkpoint.tensor("model.layers.0.self_attn.q_norm.weight", (16,))
    assert f"`{Q_PROJ}`" in str(caught.value.hint)
    with pytest.raises(InvalidCheckpoint, match="is missing") as caught:
        checkpoint.tensor("zzz", (16,))
    assert "llama checkpoint" in str(caught.value.hint)


def test_tensors_are_views_that_cannot_be_written(checkpoint: Checkpoint) -> None:
    data = checkpoint.tensors[Q_PROJ].data
    assert data.base is not None and data.dtype == np.uint8 and data.ndim == 1
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def test_a_released_tensor_reads_the_same_again(checkpoint: Checkpoint) -> None:
    before = {name: tensor.data.tobytes() for name, tensor in checkpoint.tensors.items()}
    for tensor in checkpoint.tensors.values():
        checkpoint.release(tensor)
    assert {n: t.data.tobytes() for n, t in checkpoint.tensors.items()} == before


def test_a_file_cut_while_it_is_read_is_an_invalid_checkpoint(checkpoint: Checkpoint) -> None:
    tensor = checkpoint.tensors[Q_PROJ]
    checkpoint.release(tensor)
    os.truncate(checkpoint.path, 1000)
    with pytest.raises(InvalidCheckpoint, match="as when it was opened, found 1,000"):
        checkpoint.release(tensor)


def test_an_address_space_that_is_full_is_out_of_memory(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", full)
    with pytest.raises(OutOfMemory, match="room for a map"):
        open_checkpoint(checkpoint.path)


def test_a_view_outlives_the_checkpoint(checkpoint: Checkpoint) -> None:
    tensor = checkpoint.tensors[Q_PROJ]
    before = tensor.data.tobytes()
    with checkpoint:
        pass
    assert tensor.data.tobytes() == before
    assert checkpoint.tensors == {}
    checkpoint.release(tensor)  # as late as this it does nothing, or nothing that shows
    assert tensor.data.tobytes() == before
    checkpoint.close()
