"""`inferno bench` on a tiny model: the rows, the JSON, the mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import engines
from inferno.cli import main

QUICK = ["--prompt", "3,5", "--depth", "0,4", "--generate", "2", "--runs", "1", "--threads", "1"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(engines.tiny_gguf(tmp_path / "m.gguf", context=64))


def test_a_row_for_each_workload(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *QUICK]) == 0
    output = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in output.splitlines()[3:]] == [
        "pp3", "pp5", "tg2", "tg2 @ d4",
    ]  # fmt: skip
    assert output.startswith("machine: reads ")


def test_json_is_one_object_with_everything(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *QUICK, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["threads"] == 1
    assert len(report["results"]) == 4
    for row in report["results"]:
        assert row["least"] <= row["tokens_per_second"] <= row["most"]
        assert row["share"] > 0
        assert row["times"] == 1.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prompt", "5,x"], "`--prompt`"),
        (["--prompt", "0"], "`--prompt`"),
        (["--depth", "-1"], "`--depth`"),
        (["--runs", "0"], "`--runs`"),
        (["--against", "vllm"], "llama.cpp, found 'vllm'"),
        (["--prompt", "65"], "`context`"),
    ],
)
def test_impossible_workloads_are_usage_errors(
    model: str, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", model, *QUICK, *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_profile_accounts_for_the_whole_time(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", model, *QUICK, "--json", "--profile"]) == 0
    for row in json.loads(capsys.readouterr().out)["results"]:
        phases = row["phases"]
        assert {"linear", "gated linear", "attention", "rms_norm", "embed"} <= set(phases)
        assert sum(phase["part"] for phase in phases.values()) == pytest.approx(1)
        assert all(0 <= phase["waiting"] <= 1 for phase in phases.values())
    assert main(["bench", model, *QUICK, "--profile"]) == 0
    assert capsys.readouterr().out.count("gated linear") == 4
