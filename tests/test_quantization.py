"""Quantizing to a file: calibration against numpy, and what least squares is for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engines
from inferno import Engine, InvalidOption, InvalidText
from inferno.evaluation import evaluate
from inferno.quantization import importance_of, quantize

TEXT = "Once upon a time there was a little dog. He lived in a big house by the sea. " * 5


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


def test_importance_is_the_mean_square_of_what_a_matrix_reads(
    llama_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    engine = engines.load(llama_directory, threads=2)
    ids = engine.tokenizer.encode(TEXT)
    model = AutoModelForCausalLM.from_pretrained(llama_directory, dtype=torch.float32)
    squares: dict[str, list[np.ndarray]] = {}

    def watch(name: str):
        def hook(module, inputs) -> None:
            squares.setdefault(name, []).append(np.square(inputs[0][0].numpy()))

        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(watch(f"{name}.weight"))
    monkeypatch.setattr("inferno.quantization._WINDOW", 50)
    with torch.inference_mode():
        for start in range(0, len(ids), 50):
            model(torch.tensor([ids[start : start + 50]]))
    importance = importance_of(engine, TEXT)
    assert set(importance) == set(squares)
    for name, rows in squares.items():
        expected = np.concatenate(rows).mean(axis=0)
        # Keys and values are f16 in the cache.
        np.testing.assert_allclose(importance[name], expected / expected.mean(), rtol=0.02)
    assert not engine._executor.calibrating


def test_importance_is_the_same_bits_on_any_threads_and_instruction_set(
    engine: Engine, stories_gguf: Path, isa: str
) -> None:
    expected = importance_of(engine, TEXT)
    found = importance_of(engines.load(stories_gguf, threads=3, isa=isa), TEXT)
    assert {n: v.tobytes() for n, v in found.items()} == {
        n: v.tobytes() for n, v in expected.items()
    }


def test_logits_do_not_notice_calibration(engine: Engine) -> None:
    ids = engine.tokenizer.encode(TEXT)
    expected = engine.logits(ids).tobytes()
    engine._executor.calibrating = True
    try:
        assert engine.logits(ids).tobytes() == expected
    finally:
        engine._executor.calibrating = False


def divergence(engine: Engine, path: Path) -> float:
    _, quality = evaluate(engine, TEXT, against=[("quantized", engines.load(path))]).qualities
    assert quality.kl is not None
    return quality.kl.value


def test_better_quantizers_stay_closer_to_the_model(llama_gguf: Path, tmp_path: Path) -> None:
    ways = {
        "naive": {"quantizer": "naive"},
        "reference": {"quantizer": "reference"},
        "least_squares": {},
    }
    engine, found = engines.load(llama_gguf), {}
    for name, options in ways.items():
        quantize(llama_gguf, tmp_path / f"{name}.gguf", "q4_0", threads=1, **options)
        found[name] = divergence(engine, tmp_path / f"{name}.gguf")
    assert found["least_squares"] < found["reference"] < found["naive"]


def test_a_calibration_text_moves_errors_to_where_they_matter_less(
    llama_gguf: Path, tmp_path: Path
) -> None:
    import gguf

    importance = importance_of(engines.load(llama_gguf), TEXT)[
        "model.layers.0.mlp.down_proj.weight"
    ]

    def values(path: Path) -> np.ndarray:
        (tensor,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.ffn_down.weight"]
        return gguf.dequantize(tensor.data, tensor.tensor_type)

    quantize(llama_gguf, tmp_path / "calibrated.gguf", "q4_0", calibration=TEXT, threads=1)
    quantize(llama_gguf, tmp_path / "plain.gguf", "q4_0", threads=1)
    calibrated, plain = (
        (values(tmp_path / name) - values(llama_gguf)) ** 2
        for name in ("calibrated.gguf", "plain.gguf")
    )
    assert (importance * calibrated).sum() < (importance * plain).sum()
    assert calibrated.sum() > plain.sum(), "which has its price elsewhere"


@pytest.fixture(scope="module")
def wide_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of whole blocks of 256."""
    path = tmp_path_factory.mktemp("wide") / "wide.gguf"
    return engines.tiny_gguf(path, hidden=256, intermediate=512, heads=4, kv_heads=2)


@pytest.mark.parametrize(
    "type", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q3_k", "q4_k_s", "q4_k_m", "q5_k_m", "q6_k"]
)
def test_the_gguf_package_reads_calibrated_files(
    wide_gguf: Path, tmp_path: Path, type: str
) -> None:
    import gguf

    path = tmp_path / "model.gguf"
    ids = engines.random_ids(200)
    text = engines.load(wide_gguf).tokenizer.decode(ids)
    quantize(wide_gguf, path, type, calibration=text, threads=2)
    source = {t.name: t for t in gguf.GGUFReader(wide_gguf).tensors}
    for tensor in gguf.GGUFReader(path).tensors:
        exact = source[tensor.name].data
        found = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(exact.shape)
        if tensor.tensor_type.name == "F32":
            assert (found == exact).all()
            continue
        # Half a step of four bits is a sixteenth of a block's largest weight; clipping, where
        # nothing depends on the column, may cost more of one value but not of a matrix.
        bound = 0.24 if tensor.tensor_type.name == "Q3_K" else 0.12
        assert np.linalg.norm(found - exact) < bound * np.linalg.norm(exact)


@pytest.mark.parametrize("type", ["q4_0", "q4_k_m", "q6_k"])
def test_a_file_is_the_same_bytes_on_any_threads_and_instruction_set(
    wide_gguf: Path, tmp_path: Path, type: str, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = engines.load(wide_gguf).tokenizer.decode(engines.random_ids(200))
    files = []
    for threads in (1, 3):
        monkeypatch.setenv("INFERNO_ISA", isa if threads == 3 else "scalar")
        path = tmp_path / f"{threads}.gguf"
        quantize(wide_gguf, path, type, calibration=text, threads=threads)
        files.append(path.read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("text", ["", "abc", "Once upon a time"])
def test_a_calibration_text_that_says_nothing_is_an_error(
    llama_gguf: Path, tmp_path: Path, text: str
) -> None:
    with pytest.raises(InvalidText, match="calibration text: expected at least 64 tokens"):
        quantize(llama_gguf, tmp_path / "model.gguf", "q4_0", calibration=text, threads=1)
    assert not (tmp_path / "model.gguf").exists()


def test_what_cannot_be_written_is_refused(llama_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="`quantizer`: expected one of reference, naive"):
        quantize(llama_gguf, tmp_path / "model.gguf", "q4_0", quantizer="best")
    with pytest.raises(InvalidOption, match="`type`: expected one of"):
        quantize(llama_gguf, tmp_path / "model.gguf", "q9_9")
    with pytest.raises(InvalidOption, match="expected another file than the model"):
        quantize(llama_gguf, llama_gguf, "q4_0")
    with pytest.raises(InvalidOption, match="expected a folder that exists"):
        quantize(llama_gguf, tmp_path / "nowhere" / "model.gguf", "q4_0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["a file", "a folder", "a link to nothing"])
def test_an_output_that_exists_is_left_as_it_is(
    llama_gguf: Path, tmp_path: Path, what: str
) -> None:
    path = tmp_path / "model.gguf"
    if what == "a file":
        path.write_bytes(b"precious")
    elif what == "a folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(InvalidOption, match="expected a new file, found one that exists"):
        quantize(llama_gguf, path, "q4_0")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.gguf"]
    assert what != "a file" or path.read_bytes() == b"precious"


def test_a_disk_that_is_full_leaves_nothing(llama_gguf: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: writing fails in the middle of one."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            quantize(llama_gguf, tmp_path / "model.gguf", "q8_0", threads=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
