"""Experts of one tensor under names of their own: no value changes, and no other is taken apart."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import architectures
import checkpoints
from inferno import Engine
from inferno.errors import InvalidCheckpoint, UnsupportedModel
from inferno.weights import Checkpoint, open_checkpoint
from inferno.weights.expert_stacks import unstack_gpt_oss, unstacked
from inferno.weights.mapped_file import MappedFile
from inferno.weights.safetensors import parse
from inferno.weights.tensor import StoredTensor, StridedBytes

EXPERTS = "model.layers.0.mlp.experts"


def floats(checkpoint: Checkpoint, name: str) -> Any:
    tensor = checkpoint.tensors[name]
    data = tensor.rows(0, tensor.shape[0]).tobytes()
    return np.frombuffer(data, np.float32).reshape(tensor.shape)


@pytest.mark.parametrize("model_type", ["gpt_oss", "mixtral", "qwen3_moe"])
def test_each_expert_has_its_values_in_both_containers(tmp_path: Path, model_type: str) -> None:
    directory = architectures.save(tmp_path / "directory", model_type)
    gguf = architectures.save_gguf(tmp_path / "model.gguf", directory)
    _, tensors = architectures.read(directory)
    experts = [name for name in tensors if ".experts." in name]
    assert len(experts) > 30
    for path in (directory, gguf):
        with open_checkpoint(path) as checkpoint:
            for name in experts:
                np.testing.assert_array_equal(floats(checkpoint, name), tensors[name])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_taken_apart_as_bytes(tmp_path: Path, dtype: str) -> None:
    path = architectures.save(tmp_path, "gpt_oss", dtype=dtype)
    _, tensors = checkpoints.read_directory(path)
    stack = tensors[f"{EXPERTS}.gate_up_proj"]  # (experts, hidden, gate and up in turns)
    with open_checkpoint(path) as checkpoint:
        tensor = checkpoint.tensors[f"{EXPERTS}.3.up_proj.weight"]
        assert (tensor.format, tensor.nbytes) == ({"bfloat16": "bf16"}.get(dtype, "f16"), 96 * 128)
        rows = tensor.rows(5, 2).view("<u2").astype(np.uint32)
    if dtype == "bfloat16":
        values = (rows << 16).view(np.float32)
    else:
        values = rows.astype("<u2").view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(values.reshape(2, 64), stack[3, :, 11:15:2].T)


def mxfp4_file(path: Path, blocks: Any, scales: Any, name: str = "gate_up_proj") -> MappedFile:
    """Write one layer's experts as gpt-oss is released."""
    tensors = {f"{EXPERTS}.{name}_blocks": blocks, f"{EXPERTS}.{name}_scales": scales}
    header, offset = {}, 0
    for key, values in tensors.items():
        header[key] = {
            "dtype": "U8",
            "shape": list(values.shape),
            "data_offsets": [offset, offset + values.nbytes],
        }
        offset += values.nbytes
    text = json.dumps(header).encode()
    data = b"".join(values.tobytes() for values in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return MappedFile(path)


def test_mxfp4_of_two_tensors_is_ggmls_blocks(tmp_path: Path) -> None:
    """The oracles: transformers' own dequantization, and gguf's of what comes out here."""
    import gguf
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (3, 8, 2, 16), np.uint8)  # experts, rows, blocks, bytes
    scales = rng.integers(110, 140, (3, 8, 2), np.uint8)
    file = mxfp4_file(tmp_path / "model.safetensors", blocks, scales)
    places = unstack_gpt_oss(parse(file))
    stack = convert_moe_packed_tensors(
        torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32
    ).numpy()  # (experts, columns, rows)
    assert sorted(places) == sorted(
        f"{EXPERTS}.{e}.{part}_proj.weight" for e in range(3) for part in ("gate", "up")
    )
    for (name, place), first in zip(sorted(places.items()), [0, 1] * 3, strict=True):
        assert place.format == "mxfp4" and place.shape == (4, 64) and place.scales is not None
        view = StridedBytes(
            file.view(place.scales.offset, place.scales.nbytes), place.scales.strides[0]
        )
        data = file.view(place.offset, place.nbytes)
        tensor = StoredTensor(name, place.shape, "mxfp4", data, False, place.strides, view)
        for start, count in ((0, 4), (1, 2), (3, 1)):
            raw = tensor.rows(start, count).reshape(count, -1)
            found = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.MXFP4)
            expert = int(name.split(".")[5])
            rows = slice(first + 2 * start, first + 2 * (start + count), 2)
            np.testing.assert_array_equal(found, stack[expert, :, rows].T)
    file.close()


@pytest.mark.parametrize(
    ("blocks", "scales"),
    [
        ((3, 8, 2, 15), (3, 8, 2)),
        ((3, 8, 2, 16), (3, 8, 3)),
        ((3, 7, 2, 16), (3, 7, 2)),
        ((3, 8, 32), (3, 8, 2)),
        ((2000, 8, 1, 16), (2000, 8, 1)),
    ],
)
def test_what_is_no_stack_of_experts_is_invalid(
    tmp_path: Path, blocks: tuple[int, ...], scales: tuple[int, ...]
) -> None:
    file = mxfp4_file(
        tmp_path / "model.safetensors", np.zeros(blocks, np.uint8), np.zeros(scales, np.uint8)
    )
    with pytest.raises(InvalidCheckpoint, match=r"gate_up_proj_blocks`: expected .*, found shape"):
        unstack_gpt_oss(parse(file))
    file.close()


def test_a_gguf_stack_of_one_dimension_is_invalid(tmp_path: Path) -> None:
    file = mxfp4_file(tmp_path / "f.safetensors", np.zeros(4, np.uint8), np.zeros(4, np.uint8))
    place = next(iter(parse(file).values()))
    with pytest.raises(InvalidCheckpoint, match="expected one of each of up to 1,024 experts"):
        list(unstacked("model.layers.0.mlp.experts.*.up_proj.weight", place))
    file.close()


def test_too_few_or_too_many_experts_are_an_invalid_checkpoint(tmp_path: Path) -> None:
    path = architectures.save(tmp_path, "qwen3_moe")
    file = path / "config.json"
    config = json.loads(file.read_text("utf-8"))
    key = "num_local_experts" if "num_local_experts" in config else "num_experts"
    for count in (6, 8):
        file.write_text(json.dumps({**config, key: count}), "utf-8")
        message = rf"mlp.gate.weight`: expected shape \({count}, 64\), found \(7, 64\)"
        with pytest.raises(InvalidCheckpoint, match=message) as caught:
            Engine.load(path)
        assert f"num_experts = {count}" in str(caught.value.hint)
    file.write_text(json.dumps({**config, "num_experts_per_tok": 8}), "utf-8")
    with pytest.raises(InvalidCheckpoint, match="expected at most num_experts = 7, found 8"):
        Engine.load(path)
    file.write_text(json.dumps({**config, "hidden_act": "relu"}), "utf-8")
    with pytest.raises(UnsupportedModel, match="Activation `relu`"):
        Engine.load(path)
