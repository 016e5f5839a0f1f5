from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inferno
from inferno import errors
from inferno.cli import COMMANDS, main

FAKE_INFERNO = Path(__file__).with_name("fake_inferno.py")
HEAVY = ("numpy", "tqdm", "prompt_toolkit", "jinja2", "tokenizers", "inferno._native")
HEAVY += ("huggingface_hub",)


def imported_by(code: str) -> set[str]:
    probe = (
        f"import sys\n{code}\nprint([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return set(re.findall(r"'([\w.]+)'", done.stderr.splitlines()[-1]))


def test_importing_the_command_line_imports_nothing_heavy():
    assert imported_by("import inferno.cli") == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_imports_nothing_heavy(command):
    assert imported_by(f"import inferno.cli; inferno.cli.main([{command!r}, '--help'])") == set()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_inferno_alone_says_what_to_do_next(arguments, capsys):
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "Start with:  inferno chat" in output
    assert all(f"\n  {usage}" in output for usage, _ in COMMANDS.values())


def test_every_listed_command_exists():
    for command in COMMANDS:
        assert callable(importlib.import_module(f"inferno.cli.{command}").main)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_fits_a_screen(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_version_is_one_line(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"inferno \S.*\n", capsys.readouterr().out)


def test_an_unknown_command_is_a_usage_error_that_suggests_one(capsys):
    assert main(["caht"]) == 2
    assert (
        capsys.readouterr().err
        == "error: Unknown command `caht`\nhint: did you mean `inferno chat`?\n"
    )


def test_an_unknown_option_is_a_usage_error_that_suggests_one(capsys):
    assert main(["chat", "--temprature=1"]) == 2
    assert "hint: did you mean `--temperature`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["chat", "--threads", "many"],
        ["chat", "--temperature", "nan"],
        ["chat", "--top-p", "2"],
        ["chat", "--max-tokens", "-1"],
        ["chat", "a", "b"],
        ["chat", "--stop", ""],
    ],
)
def test_a_wrong_argument_is_a_usage_error_before_anything_is_loaded(
    arguments, engine, stdin, capsys
):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.out == ""
    assert engine.loads == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidOption("x"), 2),
        (errors.ModelNotFound("x"), 3),
        (errors.OutOfMemory("x"), 4),
        (MemoryError("x"), 4),
        (errors.UnsupportedModel("x"), 5),
        (errors.InvalidCheckpoint("x"), 1),
        (errors.DownloadFailed("x"), 1),
        (errors.ContextFull("x"), 1),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_exit_codes(error, code, engine, monkeypatch, capsys):
    monkeypatch.setattr(engine, "load", lambda *a, **k: (_ for _ in ()).throw(error))
    assert main(["chat", "--prompt", "hi"]) == code
    output = capsys.readouterr().err
    assert output.startswith("error: ") and "Traceback" not in output


def test_an_error_is_two_lines_with_its_hint(engine, monkeypatch, capsys):
    error = errors.ModelNotFound("Model `x`: not there", hint="look elsewhere")
    monkeypatch.setattr(engine, "load", lambda *a, **k: (_ for _ in ()).throw(error))
    main(["chat", "--prompt", "hi"])
    assert capsys.readouterr().err == "error: Model `x`: not there\nhint: look elsewhere\n"


def test_debug_shows_where_an_error_happened(engine, capsys):
    assert main(["chat", "--prompt", "a bug", "--debug"]) == 1
    output = capsys.readouterr().err
    assert "Traceback" in output and "error: ZeroDivisionError: division by zero" in output


def test_escape_sequences_in_an_error_are_not_obeyed(capsys):
    assert main(["\x1b[2Jchat"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_an_interrupt_exits_quietly_with_130(engine, monkeypatch, capsys):
    monkeypatch.setattr(engine, "load", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["chat", "--prompt", "hi"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_closed_pipe_ends_the_command_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, FAKE_INFERNO, "run", "model", "hi", "endless"],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["run", "model", "hi"], ["chat", "--help"]])
def test_an_output_without_room_is_an_error_of_one_line(arguments):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, FAKE_INFERNO, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},  # argparse ignores errors of its own writes
        )
    assert done.stderr.splitlines()[-1] == "error: standard output: no space left on device"
    assert done.returncode == 1


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["--version", "chat --help", "run model hi --verbose"])
def test_a_command_whose_output_is_closed_runs_all_the_same(arguments, closed):
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$1" {arguments} {closed}', sys.executable, FAKE_INFERNO],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "error" not in done.stderr


def test_an_output_that_lacks_a_character_shows_a_question_mark():
    done = subprocess.run(
        [sys.executable, FAKE_INFERNO, "run", "model", "2 € please"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [b"You said: 2 ? please"])


ON_WINDOWS = """
import runpy, sys, types
sys.platform = "win32"
sys.modules.setdefault("msvcrt", types.ModuleType("msvcrt"))
from inferno import windows
windows.unread_bytes = lambda descriptor: 0
sys.stdout.reconfigure(encoding="cp1252")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(("chosen", "shown"), [(None, "2 € ☃"), ("cp1252", "2 € ?")])
def test_a_pipe_of_windows_gets_utf8_unless_somebody_chose_otherwise(chosen, shown):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONIOENCODING"}
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS, FAKE_INFERNO, "run", "model", "2 € ☃"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment | ({"PYTHONIOENCODING": chosen} if chosen else {}),
    )
    assert done.stdout.decode(chosen or "utf-8").splitlines() == [f"You said: {shown}"]


def test_a_closed_pipe_of_windows_ends_the_command_quietly():
    """The C library there says EINVAL."""
    script = (
        "import errno, sys; from inferno.cli import main\n"
        "class Closed:\n"
        "    def write(self, text): raise OSError(errno.EINVAL, 'Invalid argument')\n"
        "    def flush(self): pass\n"
        "    def isatty(self): return False\n"
        "sys.stdout, sys.platform = Closed(), sys.argv[1]\n"
        "sys.exit(main(['--help']))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run([*command, "win32"], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (141, b"", b"")
    done = subprocess.run([*command, "linux"], capture_output=True)
    assert done.returncode == 1 and b"Invalid argument" in done.stderr


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "inferno", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("inferno ")


def test_the_fake_stands_where_the_commands_look(engine):
    assert inferno.Engine is engine
