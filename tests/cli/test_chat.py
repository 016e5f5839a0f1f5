from __future__ import annotations

import os
import stat

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from inferno import hub
from inferno.cli import main
from inferno.cli.chat import Chat
from inferno.cli.conversation import Conversation
from inferno.cli.terminal import Terminal, is_open, unquoted

ENTER, ALT_ENTER, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\x03", "\x04", "\x1b[A"


@pytest.fixture
def chat(engine, tmp_path, capsys):
    """Type `keys` in a chat; returns what was printed. The conversation is `chat.conversation`."""

    def type_in(keys: str, **options) -> str:
        conversation = type_in.conversation = Conversation(engine(), **options)
        with (
            create_pipe_input() as keyboard,
            create_app_session(input=keyboard, output=DummyOutput()),
        ):
            keyboard.send_text(keys)
            terminal = Terminal(tmp_path / "home" / "chat-history", Chat.completions())
            Chat(engine(), conversation, terminal).run()
        return capsys.readouterr().out

    return type_in


def asked(engine) -> list[str]:
    return [messages[-1]["content"] for _, messages, _, _ in engine.calls]


# One answer ───────────────────────────────────────────────────────────────────────────────────────


def test_a_prompt_is_answered_once(engine, stdin, capsys):
    assert main(["chat", "--prompt", "hello"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "You said: hello\n"
    assert captured.err.startswith("Parrot-1M · llama · q4_1 + q8_0 · 8192 context")
    assert engine.loads == [(hub.CATALOGUE["smollm2-135m-instruct"].name, {})]


def test_options_reach_the_engine(engine, stdin, capsys):
    main(
        [
            "chat",
            "x.gguf",
            "--prompt",
            "hi",
            "--threads",
            "1",
            "--system",
            "Be brief.",
            "--top-k",
            "3",
        ]
    )
    assert engine.loads == [("x.gguf", {"threads": 1})]
    _, messages, _, overrides = engine.calls[0]
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert overrides == {"top_k": 3}


def test_away_from_a_terminal_standard_input_is_the_prompt(engine, stdin, capsys):
    stdin(b"from a pipe\n")
    assert main(["chat"]) == 0
    assert capsys.readouterr().out == "You said: from a pipe\n"


def test_no_terminal_and_no_prompt_is_a_usage_error(engine, stdin, capsys):
    assert main(["chat", "--prompt", ""]) == 2
    assert "--prompt" in capsys.readouterr().err
    assert engine.loads == []


# The conversation ─────────────────────────────────────────────────────────────────────────────────


def test_each_turn_sends_the_turns_before_it_in_one_session(chat, engine):
    output = chat("one" + ENTER + "two" + ENTER + "/exit" + ENTER)
    assert output == "You said: one\nYou said: two\n"
    (_, first, first_session, _), (_, second, second_session, _) = engine.calls
    assert first == [{"role": "user", "content": "one"}]
    assert second == [
        *first,
        {"role": "assistant", "content": "You said: one"},
        {"role": "user", "content": "two"},
    ]
    assert first_session is second_session


@pytest.mark.parametrize("leave", [CTRL_D, CTRL_C + CTRL_C, "/exit" + ENTER, "/bye" + ENTER])
def test_ways_to_leave(chat, engine, leave):
    chat(leave)
    assert engine.calls == []


def test_one_interrupt_at_the_empty_prompt_does_not_leave(chat, engine):
    output = chat(CTRL_C + "hi" + ENTER + CTRL_C + CTRL_D)
    assert "Ctrl-C again" in output
    assert asked(engine) == ["hi"]


def test_an_interrupt_discards_what_was_typed(chat, engine):
    chat("no" + CTRL_C + "yes" + ENTER + CTRL_D)
    assert asked(engine) == ["yes"]


def test_an_interrupt_stops_the_reply_and_keeps_its_beginning(chat, engine):
    output = chat("please be interrupted" + ENTER + "go on" + ENTER + CTRL_D)
    assert output == "half \n(stopped)\nYou said: go on\n"
    assert engine.calls[1][1][1] == {"role": "assistant", "content": "half "}


def test_a_blank_line_is_no_message(chat, engine):
    chat(ENTER + "   " + ENTER + CTRL_D)
    assert engine.calls == []


def test_alt_enter_makes_a_new_line(chat, engine):
    chat("a" + ALT_ENTER + "b" + ENTER + CTRL_D)
    assert asked(engine) == ["a\nb"]


def test_triple_quotes_hold_several_lines(chat, engine):
    chat('"""a' + ENTER + ENTER + 'b"""' + ENTER + CTRL_D)
    assert asked(engine) == ["a\n\nb"]


def test_a_pasted_text_of_several_lines_is_one_message(chat, engine):
    chat("\x1b[200~a\nb\x1b[201~" + ENTER + CTRL_D)
    assert asked(engine) == ["a\nb"]


def test_a_full_context_keeps_the_message_at_the_prompt(chat, engine):
    output = chat("this is too-long" + ENTER + "\x08" * len(" too-long") + ENTER + CTRL_D)
    assert "error: Context is full" in output
    assert "hint: /clear starts anew; your message is kept; load with --context 100" in output
    assert asked(engine) == ["this is too-long", "this is"]


def test_a_context_that_fills_up_in_a_reply_keeps_what_was_said(chat, engine):
    output = chat("an overflow" + ENTER + "more" + ENTER + CTRL_D)
    assert output.startswith("so far\nerror: Context is full")
    assert engine.calls[1][1][1] == {"role": "assistant", "content": "so far"}


def test_a_refused_message_does_not_end_the_chat(chat, engine):
    output = chat("this is refused" + ENTER + CTRL_C + "hi" + ENTER + CTRL_D)
    assert "error: The chat template refused the messages" in output
    assert "You said: hi" in output


def test_a_reply_without_text_is_said_to_be_empty(chat, engine):
    assert chat("silence" + ENTER + CTRL_D) == "(the model had nothing to say)\n"
    assert chat.conversation.turns == []


def test_a_reply_that_was_cut_is_said_to_be(chat, engine):
    assert chat("long" + ENTER + CTRL_D).startswith("cut\n(cut: ")


# Commands ─────────────────────────────────────────────────────────────────────────────────────────


def test_help_lists_every_command(chat):
    output = chat("/help" + ENTER + CTRL_D)
    assert all(command in output for command in Chat.completions())


def test_clear_forgets_the_turns_and_the_session_but_not_the_system_message(chat, engine):
    chat("one" + ENTER + "/clear" + ENTER + "two" + ENTER + CTRL_D, system="Be brief.")
    _, messages, session, _ = engine.calls[1]
    assert [message["content"] for message in messages] == ["Be brief.", "two"]
    assert session is not engine.calls[0][2]


def test_system_sets_shows_and_empties_the_system_message(chat, engine):
    output = chat(ENTER.join(("/system Be kind.", "/system", "a", '/system ""', "b", "/exit", "")))
    assert "system: Be kind." in output
    assert engine.calls[0][1][0] == {"role": "system", "content": "Be kind."}
    assert engine.calls[1][1][0] == {"role": "system", "content": ""}


def test_stats_show_the_speed_and_the_context(chat):
    output = chat("one" + ENTER + "/stats" + ENTER + CTRL_D)
    assert "prompt 12 tokens (2 cached), 100.0 tok/s · reply 3 tokens, 15.0 tok/s" in output
    assert "context 2 of 8192 tokens, 1 turn\n" in output


def test_an_unknown_command_suggests_one(chat, engine):
    output = chat("/hlep" + ENTER + CTRL_D)
    assert output == "error: Unknown command /hlep\nhint: did you mean /help?\n"
    assert engine.calls == []


def test_a_path_is_a_message_and_no_command(chat, engine):
    chat("/etc/hosts says what?" + ENTER + CTRL_D)
    assert asked(engine) == ["/etc/hosts says what?"]


# The line ─────────────────────────────────────────────────────────────────────────────────────────


def test_history_is_kept_for_the_next_chat_and_for_its_owner_only(chat, engine, tmp_path):
    chat("remember me" + ENTER + CTRL_D)
    chat(UP + ENTER + CTRL_D)
    assert asked(engine) == ["remember me", "remember me"]
    if os.name != "nt":
        assert stat.S_IMODE((tmp_path / "home" / "chat-history").stat().st_mode) == 0o600


def test_a_history_that_cannot_be_written_does_not_stop_the_chat(chat, engine, tmp_path):
    (tmp_path / "home").write_text("a file where the folder should be")
    chat("hi" + ENTER + CTRL_D)
    assert asked(engine) == ["hi"]


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ('"""', True),
        ('""""""', False),
        ('"""a', True),
        ('"""a"""', False),
        ('"""a""" ', False),
        ('a"""', False),
        ("", False),
    ],
)
def test_which_texts_wait_for_closing_quotes(text, claim):
    assert is_open(text) is claim


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""a"""', "a"),
        ('"""\na\n"""', "a"),
        ('"""a', "a"),
        ('say """a"""', 'say """a"""'),
    ],
)
def test_quotes_are_taken_off(text, expected):
    assert unquoted(text) == expected
