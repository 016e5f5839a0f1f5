"""Calls of tools: their format is the template's own, and a text that follows it is read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import engines
import tool_templates
from inferno import Engine, InvalidOption
from inferno.chat import ChatTemplate
from inferno.constraint import Source
from inferno.tool_calls import CallReader, Tool, ToolFormat

CONTROL = {
    "<|im_start|>": 1, "<|im_end|>": 2, "[INST]": 3, "[/INST]": 4, "[TOOL_CALLS]": 5, "[ARGS]": 6,
    "<|channel|>": 7, "<|message|>": 8, "[AVAILABLE_TOOLS]": 9,
}  # fmt: skip
NAMES = ("HERMES", "THINKING", "LLAMA", "MISTRAL", "TEKKEN")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [Tool("weather", CITY), Tool("weather_of_town", CITY)]


def format_of(name: str) -> ToolFormat:
    template = ChatTemplate(getattr(tool_templates, name), "", "<|im_end|>")
    return ToolFormat.of(template, CONTROL, ["<|im_end|>"])


def spoken(name: str, calls: list[tuple[str, Any]], content: str | None = None) -> str:
    """Return what the template itself writes for a reply, up to its end."""
    template = ChatTemplate(getattr(tool_templates, name), "", "<|im_end|>")
    called = [
        {"id": f"abcdefgh{n}", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    asked = {"role": "user", "content": "Ask"}
    reply: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": called}
    messages = [asked, reply, {"role": "user", "content": "Well"}]
    # No tools here: where they stand is of no concern.
    before = template.render([asked], "INST" not in template.template)
    return template.render(messages, False).removeprefix(before).split("<|im_end|>")[0]


def read(name: str, text: str, size: int) -> tuple[str, list[tuple[str, str]], int]:
    """Return the content and the calls of a text that comes in pieces of `size`."""
    reader = CallReader(format_of(name))
    content, calls = "", []
    pieces = [piece for i in range(0, len(text), size) for piece in reader.push(text[i : i + size])]
    for piece in [*pieces, *reader.finish()]:
        content += piece.content
        if piece.name:
            assert piece.call == len(calls)
            calls.append((piece.name, ""))
        elif piece.call >= 0:
            calls[piece.call] = (calls[piece.call][0], calls[piece.call][1] + piece.arguments)
    return content, calls, reader.num_complete


@pytest.mark.parametrize(
    ("name", "trigger", "is_first", "several"),
    [
        ("HERMES", "<tool_call>", False, True),
        ("THINKING", "<tool_call>", False, True),
        ("LLAMA", '{"name": "', True, False),
        ("MISTRAL", "[TOOL_CALLS]", False, True),
        ("TEKKEN", "[TOOL_CALLS]", False, True),
    ],
)
def test_the_format_is_what_the_template_writes(
    name: str, trigger: str, is_first: bool, several: bool
) -> None:
    format = format_of(name)
    assert (format.trigger, format.is_first) == (trigger, is_first)
    assert (format.between is not None) is several
    assert set(format.control_tokens) == {
        t for t in ("[TOOL_CALLS]", "[ARGS]") if t in trigger + format.middle
    }


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("MARKUP", "does not write arguments as a JSON object"),
        ("CHANNELS", "puts replies into channels"),
    ],
)
def test_a_format_that_is_not_known_is_refused_and_why(name: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason) as caught:
        format_of(name)
    assert "`tools`" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages[0].content }}", "has no tools"),
        ("{% if tools %}{{ raise_exception('No tools, please') }}{% endif %}", "No tools, please"),
        (tool_templates.HERMES.replace("<|im_end|>", "END"), "does not end a call"),
    ],
)
def test_a_template_without_tools_is_refused(template: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        ToolFormat.of(ChatTemplate(template), CONTROL, ["<|im_end|>"])


ARGUMENTS: list[Any] = [
    {},
    {"city": "Paris"},
    {"a": {"b": [1, {"c": "}{]["}]}, "quote": 'say "}" \\ or not', "n": None},
    {"text": "<tool_call>\n[TOOL_CALLS] </tool_call> ünïcödé 🙂"},
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_calls_that_the_template_writes_are_read_back(name: str, size: int) -> None:
    for arguments in ARGUMENTS:
        content, calls, complete = read(name, spoken(name, [("weather", arguments)]), size)
        assert (content, complete) == ("", 1)
        [(called, text)] = calls
        assert (called, json.loads(text)) == ("weather", arguments)


@pytest.mark.parametrize("name", ["HERMES", "MISTRAL", "TEKKEN"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_several_calls_are_read_back_in_their_order(name: str, size: int) -> None:
    asked = [("weather", ARGUMENTS[1]), ("weather_of_town", ARGUMENTS[2]), ("weather", {})]
    content, calls, complete = read(name, spoken(name, asked), size)
    assert (content, complete) == ("", 3)
    assert [(name, json.loads(text)) for name, text in calls] == asked


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_content_before_a_call_is_content_without_the_blanks_between(size: int) -> None:
    text = spoken("HERMES", [("weather", {})], "Let me see.")
    assert read("HERMES", text, size) == ("Let me see.", [("weather", "{}")], 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        "  two\n\nlines \n",
        "a < b <tool",
        "[TOOL",
        '{"name',
        '{"names": 1}',
        "<tool_ca",
    ],
)
def test_text_without_a_call_is_content_to_the_last_character(
    name: str, size: int, text: str
) -> None:
    assert read(name, text, size) == (text, [], 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_call_that_is_cut_off_is_never_complete(name: str, size: int) -> None:
    whole = spoken(name, [("weather", {"city": "Paris"})])
    end = whole.index("Paris") + 3
    for cut in range(1, end + 1):
        content, calls, complete = read(name, whole[:cut], size)
        assert complete == 0
        if not calls:
            assert content.rstrip() == whole[:cut].rstrip()  # no character of it is lost
        else:
            assert '{"city": "Par'.startswith(calls[0][1])
    assert calls == [("weather", '{"city": "Par')]


@pytest.mark.parametrize("name", NAMES)
def test_the_grammar_names_control_tokens_by_their_ids(name: str) -> None:
    grammar = format_of(name).grammar(TOOLS)
    for token, id in format_of(name).control_tokens.items():
        assert f"<[{id}]>" in grammar
        assert token not in grammar


# ---- what may be said ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(llama_gguf: Path) -> Engine:
    return engines.load(llama_gguf)


def may_say(engine: Engine, grammar: str, text: str) -> bool | None:
    """Tell whether `text` may come and be all; None if it may come, but must go on."""
    constraint = engine._constraints.constraint(
        Source("grammar", grammar), previous=50, ignore_eos=False
    )
    for id in engine.tokenizer.encode(text):
        mask = constraint.mask()
        if not int(mask.words[id // 32]) >> id % 32 & 1:
            return False
        constraint.accept(id)
    return True if constraint.is_complete or constraint.mask().may_end else None


PARIS = ("weather", {"city": "Paris"})


@pytest.mark.parametrize("name", ["HERMES", "THINKING", "LLAMA"])
def test_what_a_template_writes_is_what_may_be_said(engine: Engine, name: str) -> None:
    format = format_of(name)
    call, other = spoken(name, [PARIS]), spoken(name, [("other", {})])
    wrong = spoken(name, [("weather", {"city": 5})])
    for content in ("/(?s:.*)/", None):
        grammar = format.grammar(TOOLS, content=content)
        assert may_say(engine, grammar, call) is True
        assert may_say(engine, grammar, call + " and more") is False
        assert may_say(engine, grammar, call[:-1]) is None
        assert may_say(engine, grammar, other) is False
        assert may_say(engine, grammar, wrong) is False
        says = content is not None
        assert may_say(engine, grammar, "Hello {world} <tool_ca") is says
        assert may_say(engine, grammar, "") is (True if says else None)


def test_several_calls_may_be_said_unless_one_at_a_time_is_asked_for(engine: Engine) -> None:
    format = format_of("HERMES")
    text = "I see.\n" + spoken("HERMES", [PARIS, ("weather_of_town", {"city": "Rome"}), PARIS])
    assert may_say(engine, format.grammar(TOOLS), text) is True
    assert may_say(engine, format.grammar(TOOLS, several=False), text) is False


def test_a_thought_may_come_before_a_call_that_must(engine: Engine) -> None:
    format, call = format_of("THINKING"), spoken("THINKING", [PARIS])
    thought = "Let me see: <tool_call> is how.</think>\n\n"
    may = format.grammar(TOOLS, content=None, thought='"<think>" TEXT "</think>"')
    assert may_say(engine, may, "<think>" + thought + call) is True
    assert may_say(engine, may, call) is True
    assert may_say(engine, may, "<think>" + thought) is None
    assert may_say(engine, may, "Well") is False
    begun = format.grammar(TOOLS, content=None, thought='TEXT "</think>"')
    assert may_say(engine, begun, thought + call) is True
    assert may_say(engine, begun, call) is None  # all of it is thought
    formed = format.grammar(TOOLS, content='%json {"enum": [1, 2]}', thought='TEXT "</think>"')
    for reply, allowed in ((call, True), ("2", True), ("3", False)):
        assert may_say(engine, formed, thought + reply) is allowed


def test_a_reply_that_does_not_call_may_have_to_have_a_form(engine: Engine) -> None:
    for name in ("HERMES", "LLAMA"):
        grammar = format_of(name).grammar(TOOLS, content='%json {"enum": ["yes", "no"]}')
        assert may_say(engine, grammar, spoken(name, [PARIS])) is True
        assert may_say(engine, grammar, '"yes"') is True
        assert may_say(engine, grammar, "yes") is False
