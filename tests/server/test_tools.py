"""Calls of tools over HTTP: held to their schemas, streamed as OpenAI does, kept in histories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

import servers
import tool_templates
from inferno import Engine
from inferno.chat import ChatTemplate
from servers import Running, error_of, events_of

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": ["Paris", "Rome", "Oslo"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
NOTHING = {
    "type": "function",
    "function": {"name": "do_nothing", "description": None, "parameters": None},
}
TOOLS = [WEATHER, NOTHING]
HOT = {"temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 300}


def served(model: Path, template: str) -> Any:
    """Serve the tiny model with another template."""

    def load() -> Engine:
        engine = servers.load_engine(model)
        engine.template = ChatTemplate(template, "", "<|im_end|>")
        return engine

    return servers.running(load)


@pytest.fixture(scope="module")
def hermes(model: Path) -> Iterator[Running]:
    with served(model, tool_templates.HERMES) as it:
        yield servers.wait_until_loaded(it)


@pytest.fixture(scope="module")
def thinking(model: Path) -> Iterator[Running]:
    with served(model, tool_templates.THINKING) as it:
        yield servers.wait_until_loaded(it)


def check_calls(calls: list[dict[str, Any]], allowed: tuple[str, ...] = ("get_weather",)) -> None:
    assert calls
    for call in calls:
        assert call["type"] == "function"
        assert len(call["id"]) == 9 and call["id"].isalnum()
        assert call["function"]["name"] in allowed
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "get_weather":
            jsonschema.validate(arguments, WEATHER["function"]["parameters"])  # type: ignore[index]
        else:
            assert arguments == {}
    assert len({call["id"] for call in calls}) == len(calls)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "get_weather"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER]}},
    ],
)
def test_a_named_tool_is_called_and_its_arguments_follow_its_schema(
    hermes: Running, choice: Any
) -> None:
    for seed in range(4):
        response = hermes.chat(tools=TOOLS, tool_choice=choice, seed=seed, **HOT)
        [found] = response.json()["choices"]
        assert found["finish_reason"] == "tool_calls"
        assert found["message"]["content"] is None
        check_calls(found["message"]["tool_calls"])


def test_a_reply_that_must_call_calls_one_of_the_tools(hermes: Running) -> None:
    names = set()
    for seed in range(8):
        body = hermes.chat(
            tools=TOOLS, tool_choice="required", seed=seed, parallel_tool_calls=False, **HOT
        ).json()
        [call] = body["choices"][0]["message"]["tool_calls"]
        check_calls([call], ("get_weather", "do_nothing"))
        names.add(call["function"]["name"])
    assert names == {"get_weather", "do_nothing"}


def test_a_stream_of_calls_says_what_the_whole_answer_says(hermes: Running) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "seed": 3, "n": 2, **HOT}
    whole = hermes.chat(**fields).json()["choices"]
    events = events_of(hermes.chat(stream=True, **fields))
    assert events[-1] == "[DONE]"
    for index, choice in enumerate(whole):
        mine = [
            e["choices"][0]
            for e in events[:-1]
            if e["choices"] and e["choices"][0]["index"] == index
        ]
        assert mine[0]["delta"] == {"role": "assistant", "content": None}
        assert mine[-1]["delta"] == {}
        reasons = [c["finish_reason"] for c in mine if c["finish_reason"]]
        assert reasons == [choice["finish_reason"]]
        calls: list[dict[str, Any]] = []
        for delta in [c["delta"] for c in mine[1:-1]]:
            [part] = delta["tool_calls"]
            assert list(delta) == ["tool_calls"]
            if "id" in part:
                assert part["index"] == len(calls)
                assert (part["type"], part["function"]["arguments"]) == ("function", "")
                calls.append({"name": part["function"]["name"], "arguments": ""})
            else:
                assert part["function"]["arguments"]
                calls[part["index"]]["arguments"] += part["function"]["arguments"]
        found = [c["function"] for c in choice["message"]["tool_calls"]]
        assert calls == found


def test_a_model_that_may_call_may_also_just_talk(hermes: Running) -> None:
    """A random model never writes the tag, so this is text: to the same end as without tools."""
    body = hermes.chat(tools=TOOLS, max_tokens=12).json()
    [choice] = body["choices"]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    ids = hermes.engine.encode_chat(
        [{"role": "user", "content": "Hello"}],
        tools=[WEATHER, {"type": "function", "function": {"name": "do_nothing"}}],
    )
    assert body["usage"]["prompt_tokens"] == len(ids)


def test_no_tool_is_called_where_none_may_be(hermes: Running) -> None:
    body = hermes.chat(tools=TOOLS, tool_choice="none").json()
    assert "tool_calls" not in body["choices"][0]["message"]
    assert body["usage"]["prompt_tokens"] == hermes.chat().json()["usage"]["prompt_tokens"]


def test_a_call_that_is_cut_off_ends_with_length(hermes: Running) -> None:
    fields = {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 12}
    [choice] = hermes.chat(**fields).json()["choices"]
    assert choice["finish_reason"] == "length"


def test_calls_and_results_of_the_history_reach_the_template(hermes: Running) -> None:
    messages = [
        {"role": "user", "content": "And in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function",
             "function": {"name": "get_weather", "arguments": '{"city": "Rome", "days": 1}'}},
            {"id": None, "type": "function",
             "function": {"name": "do_nothing", "arguments": ""}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "Rain"}]},
        {"role": "user", "content": "Thanks"},
    ]  # fmt: skip
    prompt = hermes.post("/apply-template", {"messages": messages, "tools": TOOLS}).json()["prompt"]
    assert (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 1}}' in prompt
    )
    assert '{"name": "do_nothing", "arguments": {}}' in prompt
    assert "get_weather: Rain" in prompt
    assert '"description": "Tell the weather"' in prompt
    assert hermes.chat(messages=messages, tools=TOOLS).status_code == 200


def test_a_draft_with_tools_is_read_ahead_as_it_will_be_asked(hermes: Running) -> None:
    messages = [{"role": "user", "content": "What about the weather of the week? "}]
    composed = hermes.post("/v1/compose", {"messages": messages, "tools": TOOLS}).json()
    answer = hermes.chat(messages=messages, tools=TOOLS).json()
    assert answer["inferno"]["cached_tokens"] >= composed["total_tokens"] - 1


def test_log_probabilities_of_calls_spell_them(hermes: Running) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "logprobs": True, "seed": 1, **HOT}
    [choice] = hermes.chat(**fields).json()["choices"]
    text = b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"]).decode()
    for call in choice["message"]["tool_calls"]:
        assert call["function"]["arguments"] in text
    streamed = events_of(hermes.chat(stream=True, **fields))[:-1]
    parts = [c["choices"][0]["logprobs"] for c in streamed if c["choices"]]
    entries = [entry for part in parts if part for entry in part["content"]]
    assert entries == choice["logprobs"]["content"]


def test_the_openai_client_reads_calls_whole_and_streamed(hermes: Running) -> None:
    with openai.OpenAI(
        base_url=f"{hermes.url}/v1", api_key="none", max_retries=0,
        _strict_response_validation=True,
    ) as client:  # fmt: skip
        fields: dict[str, Any] = {
            "model": "m", "messages": [{"role": "user", "content": "Hello"}], "tools": TOOLS[:1],
            "tool_choice": "required", "max_tokens": 200, "seed": 5,
        }  # fmt: skip
        answer = client.chat.completions.create(**fields)
        calls = answer.choices[0].message.tool_calls
        assert calls is not None
        check_calls([call.model_dump() for call in calls])
        with client.chat.completions.stream(**fields) as stream:
            final = stream.get_final_completion()
        streamed = final.choices[0].message.tool_calls
        assert streamed is not None
        assert [c.function.arguments for c in streamed] == [c.function.arguments for c in calls]


def test_a_schema_that_cannot_be_enforced_is_refused_if_strict_and_else_noted(
    hermes: Running,
) -> None:
    parameters = {"properties": {"tags": {"type": "array", "uniqueItems": True}}}
    tool = {"name": "tag", "parameters": parameters, "strict": True}
    fields: dict[str, Any] = {"tool_choice": "required", "max_tokens": 40}
    response = hermes.chat(tools=[{"type": "function", "function": tool}], **fields)
    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == "tools[0].function.parameters"
    assert "/properties/tags/uniqueItems" in error["message"]
    tool["strict"] = False
    response = hermes.chat(tools=[{"type": "function", "function": tool}], **fields)
    assert response.status_code == 200
    assert response.headers["x-ignored-params"] == "tools[0].function.parameters"
    assert response.json()["inferno"]["warnings"]


def test_a_template_without_tools_is_a_400_that_says_what_to_do(server: Running) -> None:
    response = server.chat(tools=TOOLS)
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "tools")
    assert "hint: " in error["message"]
    assert server.chat(tools=TOOLS, tool_choice="none").status_code == 200


def test_a_template_with_a_format_of_its_own_is_a_400(model: Path) -> None:
    with served(model, tool_templates.MARKUP) as it:
        servers.wait_until_loaded(it)
        assert "JSON object" in error_of(it.chat(tools=TOOLS))["message"]


def test_calls_that_begin_with_a_control_token_are_read(model: Path) -> None:
    """The tiny vocabulary has no [TOOL_CALLS], but a control token is one like another."""
    template = tool_templates.MISTRAL.replace("[TOOL_CALLS]", "<|endoftext|>")
    with served(model, template) as it:
        servers.wait_until_loaded(it)
        it.engine.stop_ids = frozenset({2})
        fields = {"tools": TOOLS, "tool_choice": "required", "seed": 1, "logprobs": True, **HOT}
        [choice] = it.chat(**fields).json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        check_calls(choice["message"]["tool_calls"], ("get_weather", "do_nothing"))
        assert choice["logprobs"]["content"][0]["token"] == "<|endoftext|>"
        # A bias makes the model begin a call where it might also talk.
        fields |= {"tool_choice": "auto", "logit_bias": {"0": 100}, "logprobs": False}
        [choice] = it.chat(**fields).json()["choices"]
        check_calls(choice["message"]["tool_calls"], ("get_weather", "do_nothing"))
        assert it.chat(tools=TOOLS, max_tokens=8).json()["choices"][0]["message"]["content"]


def test_a_reply_that_is_a_call_is_nothing_else_with_llama(model: Path) -> None:
    with served(model, tool_templates.LLAMA) as it:
        servers.wait_until_loaded(it)
        fields = {"tools": TOOLS, "tool_choice": "required", "seed": 2, **HOT}
        [choice] = it.chat(**fields).json()["choices"]
        [call] = choice["message"]["tool_calls"]
        check_calls([call], ("get_weather", "do_nothing"))
        assert it.chat(tools=TOOLS, max_tokens=8).json()["choices"][0]["message"]["content"]


# ---- thoughts ------------------------------------------------------------------------------------


def test_a_thought_is_apart_from_the_reply(thinking: Running) -> None:
    """The prompt has begun a thought that this model does not end."""
    fields = {"chat_template_kwargs": {"thinks": True}}
    body = thinking.chat(**fields).json()
    message = body["choices"][0]["message"]
    assert message["content"] == ""
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 8
    assert message["reasoning_content"]
    deltas = [
        e["choices"][0]["delta"] for e in events_of(thinking.chat(stream=True, **fields))[:-1]
    ]
    text = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert text == message["reasoning_content"]
    plain = thinking.chat(reasoning_format="none", **fields).json()["choices"][0]["message"]
    assert plain["content"].strip() == message["reasoning_content"]
    assert "reasoning_content" not in plain


@pytest.mark.parametrize("thinks", [True, False])
def test_a_thought_comes_before_what_has_a_form(thinking: Running, thinks: bool) -> None:
    """A bias ends the thought: the schema is for what follows it."""
    end = thinking.engine.tokenizer.encode("</think>")
    fields: dict[str, Any] = {
        "chat_template_kwargs": {"thinks": thinks},
        "response_format": {"type": "json_object", "schema": {"enum": ["yes", "no"]}},
        "max_tokens": 60,
        "logit_bias": {str(id): 8 for id in end},
        **{k: v for k, v in HOT.items() if k != "max_tokens"},
    }
    ended = 0
    for seed in range(12):
        [choice] = thinking.chat(seed=seed, **fields).json()["choices"]
        if choice["finish_reason"] == "stop":
            ended += 1
            assert json.loads(choice["message"]["content"]) in ("yes", "no")
        else:
            assert thinks and not choice["message"]["content"]
    assert ended or thinks


def test_a_call_that_must_come_may_follow_a_thought(thinking: Running) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "seed": 4, **HOT}
    [choice] = thinking.chat(chat_template_kwargs={"enable_thinking": False}, **fields).json()[
        "choices"
    ]
    if choice["finish_reason"] == "tool_calls":
        check_calls(choice["message"]["tool_calls"], ("get_weather", "do_nothing"))
    assert thinking.chat(chat_template_kwargs={"thinks": True}, **fields).status_code == 200


# ---- what cannot be ------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": 5}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0]"),
    ({"tools": [{"function": {"name": 5}}]}, "tools[0]"),
    ({"tools": [{"function": {"name": "a b"}}]}, "tools[0]"),
    ({"tools": [{"function": {"name": "x" * 65}}]}, "tools[0]"),
    ({"tools": [{"function": {"name": "\ud800"}}]}, "tools[0]"),
    ({"tools": [WEATHER, WEATHER]}, "tools"),
    ({"tools": [{"function": {"name": "a", "parameters": 5}}]}, "tools[0].function.parameters"),
    (
        {"tools": [{"function": {"name": "a", "parameters": {"type": "array"}}}]},
        "tools[0].function.parameters",
    ),
    ({"tools": [WEATHER] * 300}, "tools"),
    ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": 5}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
    (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
        "tool_choice",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"tools": TOOLS, "grammar": 'start: "a"'}, "grammar"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=[str(w)[:50] for w, _ in WRONG])
def test_what_cannot_be_is_a_400_that_names_the_field(
    hermes: Running, fields: dict[str, Any], param: str
) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], **fields}
    response = hermes.client.post("/v1/chat/completions", content=json.dumps(body))
    assert response.status_code == 400
    assert error_of(response)["param"] == param


def test_no_json_of_a_history_is_a_500(hermes: Running) -> None:
    """One malformed call must not make every later request of a conversation fail unexplained."""
    for call in (
        {"id": "a", "function": {"name": "f", "arguments": "{"}},
        {"id": "a", "function": {"name": "f", "arguments": "[]"}},
        {"id": "a", "function": {"name": "f", "arguments": "[" * 100000}},
        {"id": "a", "function": {"name": None, "arguments": "{}"}},
        {"id": {"a": 1}, "function": {"name": "f", "arguments": None}},
        5,
    ):
        messages = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": 5, "name": "f", "content": "x"},
            {"role": "user", "content": "Well"},
        ]
        response = hermes.chat(messages=messages, tools=TOOLS)
        assert response.status_code in (200, 400)
        if response.status_code == 400:
            assert error_of(response)["param"].startswith("messages[1].tool_calls[0]")
    assert hermes.chat().status_code == 200
