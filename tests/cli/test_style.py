from __future__ import annotations

import io

import pytest

from inferno.cli.style import counted, describe_error, dim, format_bytes, has_colours, printable


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("inferno.windows.shows_escapes", lambda stream: True)


def test_a_terminal_has_colours_and_a_pipe_has_none():
    assert has_colours(TerminalStream())
    assert not has_colours(io.StringIO())


def test_a_console_of_windows_has_colours_if_it_obeys_escapes(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    assert has_colours(TerminalStream())
    monkeypatch.setattr("inferno.windows.shows_escapes", lambda stream: False)
    assert not has_colours(TerminalStream())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert dim("aside", TerminalStream()) == "aside"


def test_an_error_is_coloured_on_a_terminal_only():
    assert describe_error("x", None, TerminalStream()) == "\x1b[31;1merror:\x1b[0m x\n"
    assert describe_error("x", "y", io.StringIO()) == "error: x\nhint: y\n"


def test_controls_become_visible_and_text_stays():
    mark = "\N{REPLACEMENT CHARACTER}"
    assert printable("a\tb\nc\r\nd é 漢 🦙") == "a\tb\nc\nd é 漢 🦙"
    assert printable("\x1b[0m\x07\x9b1m\x7f\x00") == f"{mark}[0m{mark}{mark}1m{mark}{mark}"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (30_000, "30 KB"),
        (98_362_432, "98 MB"),
        (999_600_000, "1.0 GB"),
        (1_900_000_000, "1.9 GB"),
    ],
)
def test_bytes_are_shown_in_decimal_units(count, text):
    assert format_bytes(count) == text


def test_one_thing_is_singular():
    assert [counted(number, "thread") for number in (0, 1, 2)] == [
        "0 threads",
        "1 thread",
        "2 threads",
    ]


def test_hints_about_keywords_speak_of_flags():
    def hint(text):
        return describe_error("x", text, io.StringIO()).splitlines()[1]

    assert hint("load with context=17, or less") == "hint: load with --context 17, or less"
    assert hint('quantize (weights="q4_0")') == "hint: quantize (--weights q4_0)"
    assert hint("max_tokens=5") == "hint: --max-tokens 5"
    for other in ("pip download name==1.0", "set INFERNO_HOME=/x", "a = 5"):
        assert hint(other) == f"hint: {other}"
