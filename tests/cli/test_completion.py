"""A shell completes what the parsers understand, and the models that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inferno import _native
from inferno.cli import COMMANDS, completion
from inferno.errors import InvalidOption
from inferno.loading import KV_CACHE_TYPES
from inferno.recipes import weight_choices


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A place with no model but a file."""
    (tmp_path / "mine.gguf").touch()
    (tmp_path / "notes.txt").touch()
    return tmp_path


def completions(line: str, home: Path) -> list[str]:
    """Ask as the shell's script does."""
    found = home / "found"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(found),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "INFERNO_HOME": str(home),
        "HF_HOME": str(home),
        "OLLAMA_MODELS": str(home),
    }
    subprocess.run(
        [sys.executable, "-m", "inferno"], env={**os.environ, **asked}, cwd=home, check=True
    )
    return [word.strip() for word in found.read_text().split("\n") if word.strip()]


def test_the_first_word_completes_to_a_command(home: Path) -> None:
    assert completions("inferno ", home) == list(COMMANDS)
    assert completions("inferno ser", home) == ["serve"]
    assert "--version" in completions("inferno --", home)


def test_options_are_those_of_the_command(home: Path) -> None:
    assert completions("inferno chat --temp", home) == ["--temperature"]
    assert completions("inferno serve --api", home) == ["--api-key-file"]
    assert completions("inferno doctor --temp", home) == []


@pytest.mark.parametrize("command", ["chat", "run", "serve", "info", "eval", "bench"])
def test_a_model_is_a_name_or_a_file_here(command: str, home: Path) -> None:
    found = completions(f"inferno {command} ", home)
    assert {"smollm2-135m-instruct", "mine.gguf"} <= set(found)
    assert "notes.txt" not in found
    assert completions(f"inferno {command} smollm2-135", home) == ["smollm2-135m-instruct"]


def test_only_what_is_on_the_disk_can_be_deleted(home: Path) -> None:
    assert completions("inferno rm ", home) == []


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--isa", _native.isas()),
        ("--kv-cache", KV_CACHE_TYPES),
        ("--weights", weight_choices()),
    ],
)
def test_values_are_those_that_the_engine_takes(flag: str, values: list[str], home: Path) -> None:
    assert sorted(completions(f"inferno chat {flag} ", home)) == sorted(values)


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_understands_its_script(home: Path) -> None:
    inferno = home / "inferno"
    inferno.write_text(f'#!/bin/sh\nexec {sys.executable} -m inferno "$@"\n', encoding="utf-8")
    inferno.chmod(0o755)
    ask = """
        eval "$(inferno completion bash)"
        COMP_LINE="inferno qu" COMP_POINT=10 COMP_TYPE=9 COMP_WORDS=(inferno qu) COMP_CWORD=1
        "$(complete -p inferno | sed 's/.*-F //; s/ .*//')" inferno qu inferno
        echo "${COMPREPLY[@]}"
    """
    path = {"PATH": f"{home}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", ask], env={**os.environ, **path}, capture_output=True, text=True, cwd=home
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "quantize", "")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_shell_gets_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main([shell]) == 0
    script = capsys.readouterr().out
    assert "_ARGCOMPLETE" in script and "inferno" in script


def test_another_shell_is_refused() -> None:
    with pytest.raises(InvalidOption, match="tcsh"):
        completion.main(["tcsh"])
