"""The shell blocks of the documents run, as they stand, in a folder that has what they name.

A tiny random model stands in for those that are named. curl asks a real server. What would fetch,
build or delete things is not run; that its flags exist is checked in test_snippets.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import engines
import servers
import tool_templates
from documents import DOCUMENTS, ROOT, blocks, name_of, split_commands
from inferno.chat import ChatTemplate
from inferno.cli import main, serve

# The network, other engines, other people's caches; and programs that are not this one.
NOT_RUN = re.compile(r"\b(pull|rm)\b|hf\.co/|--against (llama\.cpp|ollama|http)|tinyllama\.gguf")


def is_run(command: list[str]) -> bool:
    return command[0] in ("inferno", "curl") and not NOT_RUN.search(" ".join(command))


def runnable(program: str) -> list[Any]:
    """List the blocks that call `program`: the document, and the commands that can be run."""
    found = []
    for document in DOCUMENTS:
        for line, code in blocks(document, "sh"):
            commands = [words for words in split_commands(code) if is_run(words)]
            commands = [words for words in commands if words[0] == program]
            if commands:
                found.append(pytest.param(commands, id=f"{name_of(document)}:{line}"))
    return found


@pytest.fixture(scope="session")
def random_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return engines.tiny_gguf(tmp_path_factory.mktemp("commands") / "tiny.gguf", context=4096)


@pytest.fixture
def workshop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, random_gguf: Path, llama_directory: Path
) -> Path:
    """A folder with the files that the documents name."""
    shutil.copy(random_gguf, tmp_path / "model.gguf")
    (tmp_path / "path/to").mkdir(parents=True)
    (tmp_path / "path/to/model").symlink_to(llama_directory)
    for name in ("notes.txt", "text.txt", "prose.txt"):
        (tmp_path / name).write_text("A river runs through it. " * 8, "utf-8")
    (tmp_path / "river.json").write_text('{"enum": ["Nile", "Rhine"]}', "utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/results").symlink_to(ROOT / "benchmarks/results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture(scope="module")
def address(random_gguf: Path) -> Iterator[str]:
    """A server whose model has a template that knows tools."""

    def load() -> Any:
        engine = servers.load_engine(random_gguf)
        engine.template = ChatTemplate(tool_templates.HERMES, "", "<|im_end|>")
        return engine

    with servers.running(load) as it:
        yield servers.wait_until_loaded(it).url


@pytest.mark.parametrize("commands", runnable("inferno"))
def test_the_commands_of_a_document_run(
    commands: list[list[str]],
    workshop: Path,
    random_gguf: Path,
    let_names_mean: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(serve, "_serve", lambda options: print(options) or 0)  # not for ever
    let_names_mean(random_gguf)
    for _, name, *arguments in commands:
        if "<" in arguments:
            arguments, source = arguments[:-2], Path(arguments[-1]).read_bytes()
        else:
            source = b"Hello"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(source), encoding="utf-8"))
        if name == "quantize":
            Path(arguments[1]).unlink(missing_ok=True)  # what is there would be left alone
        if name in ("chat", "run") and "--max-tokens" not in arguments:
            arguments += ["--max-tokens", "8"]  # a random model finds no end
        if name == "bench" and "--plot" not in arguments:
            arguments += ["--runs", "1"]
        code = main([name, *arguments])
        out, err = capfd.readouterr()
        assert code == 0, err
        assert out.strip() or name in ("quantize", "bench"), name


@pytest.mark.parametrize("commands", runnable("curl"))
def test_the_requests_of_a_document_are_answered(commands: list[list[str]], address: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl is installed")
    for command in commands:
        asked = [word.replace("http://127.0.0.1:8080", address) for word in command]
        assert asked != command
        if any("/completions" in word for word in asked):
            body = asked.index("-d") + 1
            asked[body] = json.dumps({"max_tokens": 64, **json.loads(asked[body])})
        done = subprocess.run([*asked, "-sS"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "error" not in json.loads(done.stdout), done.stdout
