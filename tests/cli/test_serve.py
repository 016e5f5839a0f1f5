"""`inferno serve` as a process: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import engines
from inferno import InvalidOption
from inferno.cli.serve import main


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return engines.tiny_gguf(tmp_path_factory.mktemp("serve") / "tiny.gguf")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--port", "70000"], "--port"),
        (["--parallel", "0"], "--parallel"),
        (["--queue", "-1"], "--queue"),
        (["--cache-memory", "0"], "--cache-memory"),
        (["--cache-memory", "nan"], "--cache-memory"),
        (["--api-key-file", "/nowhere/keys"], "--api-key-file"),
        (["--host", "0.0.0.0", "--port", "0"], "without a key"),
        (["--prot", "1"], "--prot"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    arguments: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFERNO_API_KEY", raising=False)
    with pytest.raises(InvalidOption, match=named):
        main(["no-such-model", *arguments])


def test_it_serves_with_a_key_of_a_file_until_a_signal_comes(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of the office\n\nsecret-key-1\n")
    command = [sys.executable, "-m", "inferno", "serve", str(model), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--threads", "1", "--api-key-file", str(keys), "--log-json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/v1/models").status_code == 401
        answer = httpx.post(
            f"{url}/v1/chat/completions",
            headers={"authorization": "Bearer secret-key-1"},
            json={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3},
            timeout=60,
        )
        assert answer.status_code == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in (0, -signal.SIGTERM)
    assert "memory:" in log
    assert '"status": 401' in log and '"status": 200' in log
    assert "Traceback" not in log
