from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from inferno.cli import loading
from inferno.cli.loading import LoadProgress, load_line, print_load_line


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_load_line_says_what_was_loaded(engine):
    assert load_line(engine()) == (
        "Parrot-1M · llama · q4_1 + q8_0 · 8192 context · avx2 · 2 threads · "
        "98 MB + 30 KB/token · 0.4 s"
    )


def test_the_load_line_names_a_cache_that_is_not_the_usual_one(engine, monkeypatch):
    monkeypatch.setattr(engine, "kv_cache", "q8_0")
    assert " + 30 KB/token (q8_0) · " in load_line(engine())


def test_a_name_from_a_hostile_file_stays_on_its_line(engine, monkeypatch):
    monkeypatch.setattr(engine, "config", SimpleNamespace(name="a\n\x1b[2Jb", model_type="llama"))
    assert load_line(engine()).startswith("a \N{REPLACEMENT CHARACTER}[2Jb · llama")


@pytest.mark.parametrize(
    ("best", "remedy"), [("avx2", "leave out --isa"), ("scalar", "smaller model")]
)
def test_plain_code_comes_with_a_warning_and_what_to_do(best, remedy, engine, monkeypatch, capsys):
    monkeypatch.setattr("inferno.selftest.isas", lambda: ([best], "scalar"))
    print_load_line(engine())
    assert "warning" not in capsys.readouterr().err
    monkeypatch.setattr(engine, "isa", "scalar")
    print_load_line(engine())
    _, warning, hint = capsys.readouterr().err.splitlines()
    assert "warning: instruction set `scalar`" in warning and remedy in hint


def test_what_is_quick_shows_no_progress(capsys):
    with LoadProgress() as progress:
        progress("packing", 0, 10)
        progress("packing", 10, 10)
    assert capsys.readouterr() == ("", "")


def test_away_from_a_terminal_each_step_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 0)
    with LoadProgress() as progress:
        for done in range(0, 10_000_000, 1_000_000):
            progress("fetching", done, 10_000_000)
        progress("waiting", 0, 0)
    assert capsys.readouterr() == ("", "fetching (10 MB)\nwaiting\n")


def test_on_a_terminal_a_bar_is_drawn_and_taken_away(monkeypatch):
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(sys, "stderr", TerminalStream())
    monkeypatch.setenv("TERM", "xterm")
    with LoadProgress() as progress:
        progress("fetching [bold]", 5_000_000, 10_000_000)
        progress("unpacking", 0, 0)
    drawn = sys.stderr.getvalue()
    assert "fetching [bold]" in drawn and "unpacking" in drawn
    assert drawn.endswith(" \r") and "\n" not in drawn
