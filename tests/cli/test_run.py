from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferno.cli import main

FAKE_INFERNO = Path(__file__).with_name("fake_inferno.py")


def test_the_reply_alone_is_on_stdout(engine, stdin, capsys):
    assert main(["run", "model.gguf", "What", "is", "Rust?"]) == 0
    assert capsys.readouterr() == ("You said: What is Rust?\n", "")
    assert engine.loads == [("model.gguf", {})]


def test_flags_may_stand_between_the_words(engine, stdin, capsys):
    assert main(["run", "model.gguf", "--seed", "1", "What is", "--temperature", "0", "Rust?"]) == 0
    kind, messages, _, overrides = engine.calls[0]
    assert (kind, messages) == ("chat", [{"role": "user", "content": "What is Rust?"}])
    assert overrides == {"seed": 1, "temperature": 0.0}


def test_without_words_the_prompt_is_standard_input(engine, stdin, capsys):
    stdin("Grüße\n".encode())
    assert main(["run", "model.gguf"]) == 0
    assert engine.calls[0][1][-1]["content"] == "Grüße"


def test_a_lone_dash_stands_for_standard_input(engine, stdin, capsys):
    stdin(b"some text")
    assert main(["run", "model.gguf", "Summarize", "this:", "-"]) == 0
    assert engine.calls[0][1][-1]["content"] == "Summarize this:\n\nsome text"


def test_input_is_not_read_unasked(engine, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["run", "model.gguf", "hello"]) == 0
    assert capsys.readouterr().out == "You said: hello\n"


def test_a_filled_pipe_that_is_not_read_is_mentioned():
    done = subprocess.run(
        [sys.executable, FAKE_INFERNO, "run", "model", "explain"],
        input="data",
        capture_output=True,
        text=True,
    )
    assert done.stdout == "You said: explain\n"
    assert done.stderr == "note: standard input was not read; a - in PROMPT reads it\n"


def test_input_that_is_no_utf8_is_an_error_that_names_the_byte(engine, stdin, capsys):
    stdin(b"ab\xffc")
    assert main(["run", "model.gguf"]) == 1
    assert "expected UTF-8, found byte 0xff at offset 2" in capsys.readouterr().err


def test_an_empty_prompt_is_a_usage_error(engine, stdin, capsys):
    assert main(["run", "model.gguf"]) == 2
    assert engine.loads == []


def test_the_system_message_comes_first(engine, stdin, capsys):
    main(["run", "model.gguf", "hi", "--system", "Be brief."])
    assert [message["role"] for message in engine.calls[0][1]] == ["system", "user"]


def test_raw_keeps_every_character_of_the_input(engine, stdin, capsys):
    stdin(b"Once upon\n\n")
    assert main(["run", "model.gguf", "--raw"]) == 0
    assert engine.calls[0][:2] == ("generate", "Once upon\n\n")


def test_raw_with_a_system_message_is_a_usage_error(engine, stdin, capsys):
    assert main(["run", "model.gguf", "hi", "--raw", "--system", "x"]) == 2


def test_json_is_one_object_with_text_and_figures(engine, stdin, capsys):
    assert main(["run", "model.gguf", "hé", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply == {
        "model": "Parrot-1M",
        "text": "You said: hé",
        "finish_reason": "stop",
        "stats": {
            "prompt_tokens": 12,
            "cached_tokens": 2,
            "generated_tokens": 3,
            "prefill_seconds": 0.1,
            "decode_seconds": 0.2,
            "drafted": 0,
            "accepted": 0,
        },
    }


def test_verbose_speaks_on_stderr_only(engine, stdin, capsys):
    assert main(["run", "model.gguf", "hi", "--verbose"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "You said: hi\n"
    assert captured.err == (
        "Parrot-1M · llama · q4_1 + q8_0 · 8192 context · avx2 · 2 threads · "
        "98 MB + 30 KB/token · 0.4 s\n"
        "prompt 12 tokens (2 cached), 100.0 tok/s · reply 3 tokens, 15.0 tok/s\n"
    )


def test_a_pipe_gets_the_text_as_it_is(engine, stdin, capsys):
    main(["run", "model.gguf", "escape"])
    assert capsys.readouterr().out == "a\x1b[2Jb\n"


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
def test_an_interrupt_in_a_reply_exits_with_130(engine, stdin, capsys):
    assert main(["run", "model.gguf", "interrupted"]) == 130
    assert capsys.readouterr() == ("half ", "")
