"""`inferno serve` as a process: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import engines
from inferno import InvalidOption
from inferno.cli.serve import main
from inferno.server.listener import bind


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


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server; yield its process and its URL."""
    command = [sys.executable, "-m", "inferno", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(
        [*command, "--threads", "1", "--conversations", "off"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


LONG = {
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": True,
    "ignore_eos": True,
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_finish_and_the_status_is_zero(model: Path, number: int) -> None:
    with (
        serving(str(model)) as (process, url),
        httpx.stream("POST", f"{url}/v1/chat/completions", json=LONG, timeout=60) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(number)
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(60) == 0


def test_a_signal_while_the_model_is_loaded_ends_with_zero_too() -> None:
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    endless = "import threading; from inferno.cli import serve\n"
    endless += "serve.load = lambda options: threading.Event().wait()\n"
    endless += f"serve.main(['x', '--port', '{port}', '--conversations', 'off'])"
    process = subprocess.Popen([sys.executable, "-c", endless])
    try:
        while process.poll() is None:
            with contextlib.suppress(httpx.ConnectError):
                assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 503
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


def test_a_second_signal_ends_at_once(model: Path) -> None:
    """A client that sends no more of its body keeps the server waiting, but not for longer."""
    with serving(str(model)) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as half:
            head = (
                "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
            )
            half.sendall(head.encode())
            assert httpx.get(f"{url}/health").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert any("Ctrl-C again ends at once" in line for line in process.stderr)
            with pytest.raises(OSError):  # until the first one has been taken
                while True:
                    socket.create_connection((host, int(port))).close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == -signal.SIGTERM


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
    assert process.returncode == 0
    assert "memory:" in log
    assert '"status": 401' in log and '"status": 200' in log
    assert "Traceback" not in log
