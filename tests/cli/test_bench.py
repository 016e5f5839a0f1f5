"""`inferno bench` on a tiny model: the rows, the JSON, the mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import engines
from inferno.bench import servers
from inferno.bench.contenders import Prompt, Timing
from inferno.cli import main

QUICK = ["--prompt", "3,5", "--depth", "0,4", "--generate", "2", "--runs", "1", "--threads", "1"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(engines.tiny_gguf(tmp_path / "m.gguf", context=64))


def test_a_row_for_each_workload(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *QUICK]) == 0
    output = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in output.splitlines()[4:]] == [
        "pp3", "pp5", "tg2", "tg2 @ d4",
    ]  # fmt: skip
    assert output.startswith("machine: reads ")
    assert all(re.search(r"\| +[\d.]+ ± 0\.00 \|", line) for line in output.splitlines()[4:])


def test_json_is_one_object_with_everything(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *QUICK, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["threads"] == 1
    assert len(report["results"]) == 4
    for row in report["results"]:
        assert row["least"] <= row["tokens_per_second"] <= row["most"]
        assert row["share"] > 0
        assert row["times"] == 1.0
        assert row["runs"] == [row["tokens_per_second"]]
        assert sum(phase["part"] for phase in row["phases"].values()) == pytest.approx(1)
    assert report["command"].startswith("inferno bench m.gguf --prompt 3,5")
    assert {"cpu", "cpu_flags", "commit", "date", "version", "libraries"} <= report.keys()
    assert report["engines"].keys() == {row["engine"] for row in report["results"]}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prompt", "5,x"], "`--prompt`"),
        (["--prompt", "0"], "`--prompt`"),
        (["--depth", "-1"], "`--depth`"),
        (["--runs", "0"], "`--runs`"),
        (["--against", "vllm"], "llama.cpp, ollama or a URL, found 'vllm'"),
        (["--against", "llama.cpp", "--against-model", "a", "--against-model", "b"], "one name"),
        (["--prompt", "", "--depth", ""], "found none"),
        (["--plot", "chart.pdf"], "`--plot`"),
        (["--plot", "missing/chart.svg"], "`--plot`"),
        (["--save", "missing/r.json"], "`--save`"),
        (["--prompt", "65"], "`context`"),
        (["--against", "llama.cpp", "--against-python", "missing"], "`--against-python`"),
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


def test_a_chart_is_drawn_and_drawn_again_from_what_was_saved(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    saved, first, second = (tmp_path / name for name in ("r.json", "first.svg", "second.svg"))
    assert main(["bench", model, *QUICK, "--save", str(saved), "--plot", str(first)]) == 0
    assert "pp3" in capsys.readouterr().out  # the rows are printed as ever
    assert main(["bench", str(saved), "--plot", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()


def test_what_json_prints_can_be_drawn(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert main(["bench", model, *QUICK, "--json"]) == 0
    (tmp_path / "r.json").write_text(capsys.readouterr().out)
    assert main(["bench", str(tmp_path / "r.json"), "--plot", str(tmp_path / "r.png")]) == 0
    assert (tmp_path / "r.png").stat().st_size > 1000


def test_results_without_a_chart_to_draw_are_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.json").write_text("{}")
    assert main(["bench", str(tmp_path / "r.json")]) == 2
    assert "--plot chart.svg" in capsys.readouterr().err
    assert main(["bench", str(tmp_path / "r.json"), "--plot", str(tmp_path / "a.svg")]) == 2
    assert "expected results" in capsys.readouterr().err


class Parrot:
    """A server that takes text; it counts its characters for tokens."""

    version, clock, vocab_size = "1", "timed by a parrot", None

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts: list[str] = []
        self.closed = False

    def prefill(self, prompt: Prompt) -> Timing:
        self.texts.append(prompt.text)
        return Timing(len(prompt.text), 0.5)

    def decode(self, prompt: Prompt, ids: Sequence[int]) -> Timing:
        self.texts.append(prompt.text)
        return Timing(len(ids), 0.5)

    def close(self) -> None:
        self.closed = True


def test_servers_get_the_same_texts_each_under_its_name(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: dict[str, Parrot] = {}
    asked = []

    def contender(flag: str, name: str | None, **size: int) -> Parrot:
        asked.append((flag, name, size))
        return made.setdefault(flag, Parrot("parrot"))

    monkeypatch.setattr(servers, "contender", contender)
    flags = ["--against", "ollama", "--against", "http://b", "--against-model", "smol"]
    lengths = ["--prompt", "30", "--depth", "20", "--generate", "2"]
    assert main(["bench", model, *lengths, "--runs", "1", "--threads", "1", *flags]) == 0
    assert [(flag, name) for flag, name, _ in asked] == [("ollama", "smol"), ("http://b", "smol")]
    # A nonce, or the token that a server chooses, may need a little more than the workloads.
    assert all(size == {"threads": 1, "context": 54} for _, _, size in asked)
    first, second = made.values()
    assert first.texts == second.texts and len(set(first.texts)) == 4
    assert first.closed and second.closed
    output = capsys.readouterr().out
    assert "parrot (2): 1, timed by a parrot" in output
    assert f"{len(first.texts[1])} tokens by its own count" in output
