"""gpt-oss as it is released: experts in MXFP4, in both containers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

import architectures
import engines
import f16_cache
from checkpoints import Array
from reference import quantization

IDS = engines.random_ids(70)


def release(source: Path, path: Path) -> Path:
    """Store the experts of a float checkpoint as OpenAI does: codes and scales, a tensor each.

    A byte holds two neighbours, where ggml's holds two that are half a block apart.
    """
    from safetensors.numpy import load_file, save_file

    tensors = load_file(source / "model.safetensors")
    for name, stack in list(tensors.items()):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        del tensors[name]
        rows = np.ascontiguousarray(stack.transpose(0, 2, 1))  # (experts, outputs, inputs)
        experts, outputs, inputs = rows.shape
        blocks = quantization.to_mxfp4(rows.reshape(-1, 32))
        codes = quantization.halves_apart(blocks[:, 1:]).astype(np.uint8)  # (blocks, 32)
        pairs = codes[:, 0::2] | codes[:, 1::2] << 4
        tensors[f"{name}_blocks"] = pairs.reshape(experts, outputs, inputs // 32, 16)
        scales = np.ascontiguousarray(blocks[:, 0])
        tensors[f"{name}_scales"] = scales.reshape(experts, outputs, inputs // 32)
    shutil.copytree(source, path, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    config = json.loads((path / "config.json").read_text("utf-8"))
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    }
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    return path


def released(tmp_path: Path, **options: object) -> tuple[Path, Path]:
    """Return the directory as it is released, and the float one it was made from."""
    source = architectures.save(tmp_path / "floats", "gpt_oss", **options)
    return release(source, tmp_path / "released"), source


def assert_near(found: Array, expected: Array) -> None:
    """The experts' inputs are rounded to int8, about 1 %; where that makes a token take another
    expert its row is further off, so it is the median row that counts."""
    errors = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert np.median(errors) < 0.02


def test_a_released_directory_agrees_with_transformers(tmp_path: Path) -> None:
    from transformers import Mxfp4Config

    path, _ = released(tmp_path)
    # Its own kernels are for other processors; bf16, which it dequantizes to, holds each value.
    expected = f16_cache.transformers_logits(
        path, IDS, quantization_config=Mxfp4Config(dequantize=True)
    )
    assert_near(engines.load(path).logits(IDS), expected)


def test_a_released_directory_agrees_with_the_reference(tmp_path: Path) -> None:
    path, source = released(tmp_path)
    config, tensors = architectures.read(source)
    experts = {n for n, v in tensors.items() if ".experts." in n and v.ndim == 2}
    assert len(experts) == 4 * 6 * 3
    tensors |= {n: architectures.rounded({n: tensors[n]}, "mxfp4")[n] for n in experts}
    assert_near(engines.load(path).logits(IDS), f16_cache.reference_logits(config, tensors, IDS))


def test_the_experts_of_both_containers_are_the_same_bits(tmp_path: Path) -> None:
    path, source = released(tmp_path, swiglu_limit=7.0)  # which no GGUF says
    gguf = architectures.save_gguf(tmp_path / "model.gguf", source, experts="mxfp4")
    found = engines.load(gguf).logits(IDS)
    assert found.tobytes() == engines.load(path).logits(IDS).tobytes()
