"""The chat as a person sees it: on a terminal that an emulator reads."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pyte = pytest.importorskip("pyte")
pty = pytest.importorskip("pty")

FAKE_INFERNO = Path(__file__).with_name("fake_inferno.py")
ROWS, COLUMNS = 24, 80
PATIENCE_SECONDS = 60


class Screen:
    """A process on a pseudo-terminal, and what its screen shows."""

    def __init__(self, tmp_path, *arguments: str) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        environment = {
            **os.environ,
            "INFERNO_HOME": str(tmp_path),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "LINES": str(ROWS),
            "COLUMNS": str(COLUMNS),
        }
        environment.pop("NO_COLOR", None)
        self.raw = b""
        self.process = subprocess.Popen(
            [sys.executable, FAKE_INFERNO, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            preexec_fn=_control_terminal,
        )
        os.close(slave)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, claim) -> list[str]:
        """Read until `claim(lines)` holds; the lines of the screen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not claim(self.lines):
            remaining = deadline - time.monotonic()
            if remaining < 0 or not select.select([self._master], [], [], remaining)[0]:
                raise AssertionError("the screen shows\n" + "\n".join(self.lines))
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # Linux says so when the process has closed its side
                data = b""
            if not data:
                raise AssertionError(
                    "the command ended, the screen shows\n" + "\n".join(self.lines)
                )
            self.raw += data
            self._stream.feed(data)
        return self.lines

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display if line.strip()]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


def _control_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes a signal
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def screen(tmp_path):
    screens = []

    def start(*arguments: str) -> Screen:
        screens.append(Screen(tmp_path, *arguments))
        return screens[-1]

    yield start
    for each in screens:
        each.close()


def is_prompt(line: str) -> bool:
    return line.startswith(">>> Send a message")


def test_a_chat_from_the_load_line_to_exit(screen):
    terminal = screen("chat", "parrot.gguf")
    lines = terminal.wait_for(lambda lines: lines and is_prompt(lines[-1]))
    assert lines[0].startswith("Parrot-1M · llama · q4_1 + q8_0 · 8192 context · avx2 · 2 threads")
    terminal.type("Hello there\r")
    lines = terminal.wait_for(lambda lines: is_prompt(lines[-1]) and len(lines) > 3)
    assert lines[-3:-1] == [">>> Hello there", "You said: Hello there"]
    terminal.type("/exit\r")
    assert terminal.process.wait(timeout=PATIENCE_SECONDS) == 0


def test_ctrl_c_stops_the_reply_and_not_the_chat(screen):
    terminal = screen("chat", "parrot.gguf")
    terminal.wait_for(lambda lines: lines and is_prompt(lines[-1]))
    terminal.type("be endless\r")
    terminal.wait_for(lambda lines: any(" 20 21 22 " in line for line in lines))
    terminal.type("\x03")
    lines = terminal.wait_for(lambda lines: is_prompt(lines[-1]))
    assert lines[-2] == "(stopped)"
    terminal.type("\x04")
    assert terminal.process.wait(timeout=PATIENCE_SECONDS) == 0


def test_escape_sequences_of_a_model_are_shown_and_not_obeyed(screen):
    terminal = screen("chat", "parrot.gguf")
    terminal.wait_for(lambda lines: lines and is_prompt(lines[-1]))
    terminal.type("escape\r")
    lines = terminal.wait_for(
        lambda lines: any(line.startswith("a") and line.endswith("b") for line in lines)
    )
    assert "a\N{REPLACEMENT CHARACTER}[2Jb" in lines


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_history_that_is_no_file_is_left_alone(screen, tmp_path, put):
    put(tmp_path / "chat-history")
    terminal = screen("chat", "parrot.gguf")
    terminal.wait_for(lambda lines: lines and is_prompt(lines[-1]))
    terminal.type("Hello\r")
    terminal.wait_for(lambda lines: "You said: Hello" in lines)
