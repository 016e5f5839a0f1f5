"""Reports: figures by hand, names of files, and files that are no reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferno import InvalidOption
from inferno.bench import report
from inferno.bench.contenders import Inferno
from inferno.bench.measure import Rates, Workload


def test_a_row_has_its_figures() -> None:
    contender = Inferno.__new__(Inferno)
    contender.name = "peer"
    theirs, ours = Rates((2.0, 4.0, 6.0), (7, 9, 8)), Rates((4.0, 12.0, 6.0))
    row = report.row(Workload(generate=8, depth=3), contender, theirs, ours, "bandwidth", 0.5)
    assert row == {
        "test": "tg8 @ d3", "prompt": 0, "generate": 8, "depth": 3, "engine": "peer",
        "tokens_per_second": 4.0, "deviation": 2.0, "least": 2.0, "most": 6.0,
        "runs": [2.0, 4.0, 6.0], "tokens": 8, "limit": "bandwidth", "share": 0.5,
        "limit_tokens_per_second": 8.0, "times": 2.0,
    }  # fmt: skip


def drawable() -> dict[str, Any]:
    row = {"prompt": 5, "generate": 0, "depth": 0, "tokens_per_second": 3.0, "share": 0.5}
    row |= {"limit_tokens_per_second": 6.0, "engine": "inferno scalar"}
    return {
        "model": "A model / B", "cpu": "c", "date": "2026-01-02", "isa": "scalar", "threads": 2,
        "results": [row],
    }  # fmt: skip


def test_a_directory_gets_a_file_with_a_name_that_tells_what_is_in_it(tmp_path: Path) -> None:
    path = report.save(drawable(), tmp_path)
    assert path.name == "2026-01-02-A-model-B-scalar-2t.json"
    assert report.read(path) == drawable()
    assert report.save(drawable(), tmp_path / "r.json") == tmp_path / "r.json"


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="cannot write"):
        report.save(drawable(), tmp_path / "missing" / "r.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda r: r.pop("results"),
        lambda r: r.update(results=[]),
        lambda r: r.update(results=[5]),
        lambda r: r.update(threads="2"),
        lambda r: r.update(model=None),
        lambda r: r["results"][0].update(share="half"),
        lambda r: r["results"][0].update(tokens_per_second=float("inf")),
        lambda r: r["results"][0].update(tokens_per_second=float("nan")),
        lambda r: r["results"][0].update(depth=-1),
    ],
)
def test_a_file_that_is_no_report_is_an_error(tmp_path: Path, damage) -> None:
    found = drawable()
    damage(found)
    (tmp_path / "r.json").write_text(json.dumps(found))
    with pytest.raises(InvalidOption, match="expected results") as error:
        report.read(tmp_path / "r.json")
    assert "--json" in str(error.value.hint)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_json_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "r.json").write_bytes(data)
    with pytest.raises(InvalidOption, match="expected results"):
        report.read(tmp_path / "r.json")
    with pytest.raises(InvalidOption, match="cannot be read"):
        report.read(tmp_path / "missing.json")
