from __future__ import annotations

import io
import os
import sys

import pytest

from inferno import hub, machine
from inferno.catalogue import CATALOGUE, DEFAULT_MODEL
from inferno.cli import main, picker

NAMES = list(CATALOGUE)


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch):
    """Make `pick` read these lines, then the end of input."""

    def type_in(*lines: str) -> None:
        answers = iter(lines)

        def read(prompt: str) -> str:
            print(prompt, end="")
            try:
                return next(answers)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", read)

    return type_in


@pytest.mark.parametrize(
    ("lines", "model"),
    [
        ([""], DEFAULT_MODEL),
        (["1"], NAMES[0]),
        (["2"], NAMES[1]),
        (["0", "99", "1" * 5000, "3"], NAMES[2]),
        (["hf.co/org/repo:Q8_0"], "hf.co/org/repo:Q8_0"),
        ([" ./model.gguf "], "./model.gguf"),
        ([], None),
    ],
)
def test_what_is_typed_is_what_is_picked(typed, capsys, lines, model):
    typed(*lines)
    assert picker.pick() == model
    output = capsys.readouterr().out
    assert output.count("expected a number from 1 to") == max(0, len(lines) - 1)


def test_each_model_is_offered_with_its_size_licence_and_whether_it_fits(
    typed, capsys, monkeypatch
):
    monkeypatch.setattr(machine, "available_memory", lambda: 700 << 20)
    typed("")
    picker.pick()
    lines = capsys.readouterr().out.splitlines()
    for number, entry in enumerate(CATALOGUE.values(), 1):
        (line,) = [line for line in lines if line.startswith(f"  {number}  {entry.name}")]
        assert entry.licence in line and len(line) <= 80
        assert ("too large" in line) == (picker.needed_memory(entry) > 700 << 20)
    assert any("fits" in line for line in lines) and any("too large" in line for line in lines)


def test_memory_counts_weights_as_they_are_loaded():
    entry = CATALOGUE["tinyllama-1.1b-chat-v1.0"]
    assert 600e6 < picker.needed_memory(entry) < 1e9 < entry.bytes


@pytest.fixture
def at_terminal(monkeypatch):
    """Run the command on a terminal; returns its exit code and what was shown.

    Not before the test itself: pytest sets the streams anew after the fixtures.
    """

    def run(arguments: list[str]) -> tuple[int, str]:
        screen = TerminalStream()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", TerminalStream())
            patch.setattr(sys, "stdout", screen)
            patch.setattr("inferno.cli.terminal.Terminal.__init__", lambda *a: sys.exit(0))
            code = main(arguments)
        return code, screen.getvalue()

    return run


def test_a_first_chat_asks_which_model(engine, at_terminal, typed):
    typed()  # and leaves
    code, screen = at_terminal(["chat"])
    assert code == 0 and "Which model?" in screen
    assert engine.loads == []


@pytest.mark.parametrize("arguments", [["chat", "model.gguf"], ["chat", "--prompt", "hi"]])
def test_who_names_a_model_or_a_prompt_is_not_asked(engine, at_terminal, monkeypatch, arguments):
    monkeypatch.setattr(picker, "pick", lambda: pytest.fail("it asked"))
    at_terminal(arguments)
    assert engine.loads[0][0] in ("model.gguf", DEFAULT_MODEL)


def test_who_has_the_default_model_is_not_asked(engine, at_terminal, monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "find", lambda model: tmp_path)
    monkeypatch.setattr(picker, "pick", lambda: pytest.fail("it asked"))
    at_terminal(["chat"])
    assert engine.loads == [(DEFAULT_MODEL, {})]


@pytest.mark.parametrize("missing", ["stdin", "stdout"])
def test_without_a_terminal_nobody_is_asked(engine, stdin, capsys, monkeypatch, missing):
    monkeypatch.setattr(picker, "pick", lambda: pytest.fail("it asked"))
    if missing == "stdout":
        message = TerminalStream("hello")
        message.buffer = io.BytesIO(b"hello")
        monkeypatch.setattr(sys, "stdin", message)
    else:
        stdin(b"hello")
        monkeypatch.setattr(sys, "stdout", TerminalStream())
    assert main(["chat"]) == 0
    assert engine.loads == [(DEFAULT_MODEL, {})]
    assert os.environ["INFERNO_HOME"]  # which is empty: the default model is not there
