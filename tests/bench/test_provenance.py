"""Where figures come from, in a repository made for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import inferno
from inferno import machine
from inferno.bench.provenance import commit, provenance


def test_everything_that_a_figure_depends_on_is_there() -> None:
    found = provenance("inferno bench", ["/some/where/a model.gguf", "--threads", "2"])
    assert found["command"] == "inferno bench 'a model.gguf' --threads 2"
    assert found["version"] == inferno.__version__
    assert found["cpu"] == machine.cpu_name()
    assert found["cpu_flags"] == machine.cpu_flags()
    assert {"date", "system", "python", "libraries", "commit"} <= found.keys()


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_commit_is_dirty_when_a_file_differs(tmp_path: Path) -> None:
    assert commit(tmp_path) is None

    def git(*words: str) -> str:
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *names, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "a")
    git("tag", "-m", "v1", "v1")
    head = git("rev-parse", "HEAD")
    assert commit(tmp_path) == head
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{head}-dirty"
