"""The wheel in an environment that had nothing in it, outside of the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import inferno
from inferno.catalogue import DEFAULT_MODEL

Run = Callable[..., str]

QUESTION = "Name three rivers."
GREEDY = ("--temperature", "0", "--max-tokens", "20")


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Run a command of the environment in an empty folder; return what it prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(command: str, *arguments: str) -> str:
        done = subprocess.run(
            [installed / command, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("command", ["inferno", "inferno-engine"])
def test_it_says_its_version(run: Run, command: str) -> None:
    assert run(command, "--version") == f"inferno {inferno.__version__}\n"


def test_it_is_the_package_that_was_installed(run: Run, installed: Path) -> None:
    code = "import inferno._native; print(inferno.__file__, inferno._native.__file__, sep='\\n')"
    files = run("python", "-c", code).splitlines()
    assert len(files) == 2
    assert all(Path(file).is_relative_to(installed.parent) for file in files)


def test_its_doctor_finds_the_same_bits(run: Run) -> None:
    report = json.loads(run("inferno", "doctor", "--json"))
    assert report["isas"] and report["same_bits"] == dict.fromkeys(report["isas"], True)


@pytest.mark.real_model
def test_it_answers_as_the_one_that_is_tested_does(run: Run) -> None:
    engine = inferno.Engine.load(DEFAULT_MODEL)
    reply = engine.chat(QUESTION, temperature=0, max_tokens=20).text
    assert run("inferno", "run", DEFAULT_MODEL, QUESTION, *GREEDY).strip() == reply.strip()
    assert run("inferno", "chat", "--prompt", QUESTION, *GREEDY).strip() == reply.strip()


@pytest.mark.real_model
def test_its_server_shows_the_page_and_names_the_model(installed: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [installed / "inferno", "serve", "--port", "0", "--conversations", "off"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}/v1/models") as answer:
            (model,) = json.load(answer)["data"]
        assert model["id"] == DEFAULT_MODEL
        with urllib.request.urlopen(url) as answer:
            page = answer.read().decode()
        if shutil.which("npm") is None:
            assert "chat page was not built" in page
        else:
            script = re.findall(r'<script [^>]*src="([^"]+)"', page)
            with urllib.request.urlopen(url + script[0]) as answer:
                assert answer.headers["content-type"].startswith("text/javascript")
    finally:
        process.terminate()
        process.wait(timeout=60)
    assert sys.platform == "win32" or process.returncode in (0, -15)
