"""What a newcomer runs into, in processes of their own: an error, a hint, and nothing half done."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import engines


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return engines.tiny_gguf(tmp_path_factory.mktemp("newcomer") / "tiny.gguf")


def fail(*arguments: str | Path, **variables: str | Path) -> tuple[str, str]:
    """Run a command that must fail; return its error and its hint, the last lines it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "inferno", *arguments],
        env=os.environ | {name: str(value) for name, value in variables.items()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode not in (0, -6, -11) and done.stdout == ""
    assert "Traceback" not in done.stderr
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("error: ") and hint.startswith("hint: ")
    return error, hint


def test_no_network_names_what_could_not_be_fetched_and_the_way_around(tmp_path: Path) -> None:
    error, hint = fail(
        "run", "smollm2-135m-instruct", "hi", INFERNO_HOME=tmp_path, PIP_NO_INDEX="1"
    )
    assert "`smollm2-135m-instruct`" in error
    assert "check the network" in hint and "give the path" in hint
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]


@pytest.mark.parametrize("command", ["run smollm2-135m-instruct hi", "serve {model} --port 0"])
def test_a_home_that_cannot_be_written_names_the_variable_that_moves_it(
    command: str, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    arguments = command.format(model=model).split()
    error, hint = fail(*arguments, INFERNO_HOME=tmp_path / "file/home")
    assert str(tmp_path / "file/home") in error and "INFERNO_HOME" in hint


def test_a_port_in_use_names_the_flag_that_takes_another(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        error, hint = fail("serve", model, "--port", port, "--conversations", "off")
    assert f"port {port}" in error and "--port" in hint


def test_an_instruction_set_that_the_cpu_lacks_is_told_from_those_it_has(model: Path) -> None:
    error, hint = fail("run", model, "hi", INFERNO_ISA="z80")
    assert "`z80`" in error and "scalar" in error and "INFERNO_ISA" in hint


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_a_disk_that_is_full_names_a_remedy(model: Path, tmp_path: Path) -> None:
    """A limit on the sizes of files stands for it."""
    quantize = 'ulimit -f 8; exec "$0" -m inferno quantize "$1" "$2" --type q8_0'
    target = tmp_path / "out.gguf"
    done = subprocess.run(
        ["sh", "-c", quantize, sys.executable, model, target], capture_output=True, text=True
    )
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("error: ") and str(target) in error and hint.startswith("hint: ")
    assert not target.exists()
