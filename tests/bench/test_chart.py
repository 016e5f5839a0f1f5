"""The chart, read back from its axes; no pixel is looked at."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from inferno import InvalidOption
from inferno.bench import chart

pytest.importorskip("matplotlib")


def row(engine: str, rate: float, limit: float, prompt: int = 0, depth: int = 0) -> dict[str, Any]:
    return {
        "engine": engine, "prompt": prompt, "generate": 0 if prompt else 8, "depth": depth,
        "tokens_per_second": rate, "share": rate / limit, "limit_tokens_per_second": limit,
    }  # fmt: skip


REPORT: dict[str, Any] = {
    "model": "Tiny $1$", "cpu": "A CPU", "threads": 2, "date": "2026-01-02",
    "results": [
        row("inferno x", 300.0, 400.0, prompt=50), row("peer", 100.0, 400.0, prompt=50),
        row("inferno x", 320.0, 410.0, prompt=500), row("peer", 110.0, 410.0, prompt=500),
        row("inferno x", 60.0, 64.0), row("peer", 50.0, 64.0),
        row("inferno x", 40.0, 50.0, depth=1500), row("peer", 20.0, 50.0, depth=1500),
    ],
}  # fmt: skip


def bars(axes: Any) -> dict[str, list[float]]:
    return {box.get_label(): [bar.get_height() for bar in box] for box in axes.containers}


def limits(axes: Any) -> list[float]:
    return [segment[0][1] for lines in axes.collections for segment in lines.get_segments()]


def test_a_bar_for_each_engine_and_length() -> None:
    prefill, decode = chart.draw(REPORT).axes
    assert bars(prefill) == {"inferno x": [300, 320], "peer": [100, 110]}
    assert bars(decode) == {"inferno x": [60, 40], "peer": [50, 20]}
    assert [label.get_text() for label in prefill.get_xticklabels()] == ["50", "500"]
    assert [label.get_text() for label in decode.get_xticklabels()] == ["0", "1500"]
    assert (prefill.get_title("left"), decode.get_title("left")) == ("prefill", "decode")
    # Side by side: no two bars overlap.
    for axes in (prefill, decode):
        edges = sorted(
            (b.get_x(), b.get_x() + b.get_width()) for box in axes.containers for b in box
        )
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(edges))


def test_the_limit_is_a_line_over_each_group_and_our_share_is_written() -> None:
    prefill, decode = chart.draw(REPORT).axes
    assert limits(prefill) == [400, 410]
    assert limits(decode) == [64, 50]
    for axes, shares in ((prefill, {"75 %", "78 %"}), (decode, {"94 %", "80 %"})):
        texts = [text.get_text() for text in axes.texts]
        assert {text for text in texts if "%" in text} == shares
        assert axes.get_ylim()[1] > max(limits(axes))


def test_the_picture_says_what_was_measured_where() -> None:
    figure = chart.draw(REPORT)
    title = figure.get_suptitle()
    assert all(word in title for word in ("A CPU", "2 threads", "2026-01-02"))
    assert r"\$1\$" in title  # and not mathematics
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert [label for label in labels if "limit" not in label] == ["inferno x", "peer"]


def test_prefill_alone_is_one_panel() -> None:
    rows = [r for r in REPORT["results"] if r["prompt"]]
    (axes,) = chart.draw({**REPORT, "results": rows}).axes
    assert axes.get_title("left") == "prefill"


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_same_report_gives_the_same_file(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        chart.save(chart.draw(REPORT), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert (b"<svg" in first and b"inferno x" in first) or first.startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_an_error_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidOption, match=r"\.png or \.svg, found 'a\.pdf'"):
        chart.check(tmp_path / "a.pdf")
    with pytest.raises(InvalidOption, match="cannot write"):
        chart.save(chart.draw(REPORT), tmp_path / "missing" / "a.svg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InvalidOption, match="not installed") as error:
        chart.check(tmp_path / "a.svg")
    assert error.value.hint == "pip install 'inferno-engine[plot]'"
