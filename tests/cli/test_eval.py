"""`inferno eval` and `inferno quantize`: tables, JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferno.cli import main

TEXT = "Once upon a time there was a little dog. He lived in a big house by the sea. " * 3


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, "utf-8")
    return path


def test_the_table_has_a_row_a_model(stories_gguf: Path, text: Path, capsys) -> None:
    arguments = ["eval", str(stories_gguf), "--text", str(text), "--against", "q8_0"]
    assert main([*arguments, "--against", "f16", "--threads", "1"]) == 0
    header, reference, *others, method = capsys.readouterr().out.splitlines()
    for column in ("perplexity", "change", "top-1 agreement", "mean KL"):
        assert column in header
    assert "f32" in reference and [row.split()[0] for row in others] == ["q8_0", "f16"]
    assert all("±" in row for row in (reference, *others)) and "tokens" in method


def test_the_same_model_with_another_cache_can_be_compared(
    stories_gguf: Path, text: Path, capsys
) -> None:
    arguments = ["eval", str(stories_gguf), "--text", str(text), "--kv-cache", "f32", "--threads"]
    others = [part for type in ("f16", "q8_0") for part in ("--against", f"kv-cache={type}")]
    assert main([*arguments, "1", *others, "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert [model["kv_cache"] for model in models] == ["f32", "f16", "q8_0"]
    assert {tuple(model["weights"]) for model in models} == {("f32",)}
    assert 0 < models[1]["mean_kl"] < models[2]["mean_kl"] < 0.01
    assert main([*arguments, "1", "--against", "kv-cache=q8"]) == 2
    assert "did you mean `q8_0`" in capsys.readouterr().err


def test_json_is_one_object_with_errors(stories_gguf: Path, text: Path, capsys) -> None:
    arguments = ["eval", str(stories_gguf), "--text", str(text), "--against", "q8_0", "--json"]
    assert main([*arguments, "--window", "16", "--stride", "5", "--threads", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["window"], data["stride"]) == (16, 5) and len(data["models"]) == 2
    assert {"mean_kl", "mean_kl_error", "top1_agreement", "perplexity"} <= set(data["models"][1])


def test_a_chart_is_drawn(stories_gguf: Path, text: Path, tmp_path: Path, capsys) -> None:
    chart = tmp_path / "chart.svg"
    arguments = ["eval", str(stories_gguf), "--text", str(text), "--against", "q8_0"]
    assert main([*arguments, "--plot", str(chart), "--threads", "1"]) == 0
    assert "mean KL divergence" in chart.read_text("utf-8")


@pytest.mark.parametrize("command", ["eval", "quantize"])
@pytest.mark.parametrize(
    ("data", "words"),
    [(b"abc", "expected at least"), (b"", "expected at least"), (b"a\xff" * 50, "expected UTF-8")],
)
def test_texts_that_say_nothing_are_errors(
    stories_gguf: Path, tmp_path: Path, capsys, command: str, data: bytes, words: str
) -> None:
    (tmp_path / "text.txt").write_bytes(data)
    arguments = ["eval", str(stories_gguf), "--text"]
    if command == "quantize":
        output = str(tmp_path / "model.gguf")
        arguments = ["quantize", str(stories_gguf), output, "--type", "q4_0", "--calibrate"]
    assert main([*arguments, str(tmp_path / "text.txt")]) == 1
    assert words in capsys.readouterr().err


def test_a_quantized_file_is_there_afterwards(
    llama_gguf: Path, text: Path, tmp_path: Path, capsys
) -> None:
    path = tmp_path / "model.gguf"
    arguments = ["quantize", str(llama_gguf), str(path), "--type", "q4_0", "--json"]
    assert main([*arguments, "--calibrate", str(text), "--threads", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == path.stat().st_size


@pytest.mark.parametrize("name", ["model.bin", "nowhere/model.gguf"])
def test_an_output_that_cannot_be_is_refused(
    llama_gguf: Path, tmp_path: Path, capsys, name: str
) -> None:
    assert main(["quantize", str(llama_gguf), str(tmp_path / name), "--type", "q4_0"]) == 2
    assert "Output" in capsys.readouterr().err


def test_a_type_that_is_nearly_right_is_named(llama_gguf: Path, tmp_path: Path, capsys) -> None:
    output = str(tmp_path / "model.gguf")
    assert main(["quantize", str(llama_gguf), output, "--type", "Q4_K_M"]) == 2
    assert "hint: did you mean `q4_k_m`?" in capsys.readouterr().err


def test_an_output_that_exists_is_refused(llama_gguf: Path, tmp_path: Path, capsys) -> None:
    output = tmp_path / "model.gguf"
    output.write_bytes(b"precious")
    assert main(["quantize", str(llama_gguf), str(output), "--type", "q4_k_m"]) == 2
    assert "delete it first" in capsys.readouterr().err and output.read_bytes() == b"precious"
