"""Ollama's interface, asked by its own client and by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import ollama
import pytest

import servers
import tool_templates
from inferno import Engine
from inferno.chat import ChatTemplate
from inferno.server.service import Settings
from servers import Running

HELLO = [{"role": "user", "content": "Hello"}]
GREEDY = {"temperature": 0, "num_predict": 8}
HOT = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "num_predict": 300}
TOOL = {
    "type": "function",
    "function": {
        "name": "pick",
        "description": "Pick a number",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer", "enum": [3, 5, 8]}},
            "required": ["number"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def client(server: Running) -> ollama.Client:
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def calling(model: Path) -> Iterator[Running]:
    """A server whose model begins its calls with a control token, which a bias can choose."""

    def load() -> Engine:
        engine = servers.load_engine(model)
        template = tool_templates.MISTRAL.replace("[TOOL_CALLS]", "<|endoftext|>")
        engine.template = ChatTemplate(template, "", "<|im_end|>")
        engine.stop_ids = frozenset({2})
        return engine

    with servers.running(load) as it:
        yield servers.wait_until_loaded(it)


def lines_of(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def said(engine: Engine, **params: Any) -> str:
    return engine.chat("Hello", **{"temperature": 0, "max_tokens": 8, **params}).text


# ---- chats ---------------------------------------------------------------------------------------


def test_a_chat_says_what_python_says_whole_and_streamed(
    client: ollama.Client, alone: Engine
) -> None:
    answer = client.chat("any", HELLO, options=GREEDY)
    assert answer.message.role == "assistant"
    assert answer.message.content == said(alone)
    assert (answer.done, answer.done_reason, answer.eval_count) == (True, "length", 8)
    assert answer.prompt_eval_count == len(alone.encode_chat(HELLO))
    assert answer.total_duration is not None and answer.total_duration > 0
    chunks = list(client.chat("any", HELLO, options=GREEDY, stream=True))
    assert "".join(chunk.message.content or "" for chunk in chunks) == said(alone)
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_the_default_is_a_stream_of_lines(server: Running, alone: Engine) -> None:
    lines = lines_of(server.post("/api/chat", {"messages": HELLO, "options": GREEDY}))
    assert "".join(line["message"]["content"] for line in lines) == said(alone)
    assert lines[-1]["done_reason"] == "length"
    assert lines[-1]["inferno"]["parameters"]["temperature"] == 0
    assert all(line["model"] == f"{server.service.model}:latest" for line in lines)


def test_options_say_how_tokens_are_chosen(client: ollama.Client, alone: Engine) -> None:
    options = {"temperature": 1.0, "seed": 5, "top_k": 9, "repeat_penalty": 1.3, "num_predict": 12,
               "stop": ["zz"], "repeat_last_n": -1}  # fmt: skip
    expected = said(
        alone, temperature=1.0, seed=5, top_k=9, repetition_penalty=1.3, max_tokens=12, stop=["zz"]
    )
    assert client.chat("any", HELLO, options=options).message.content == expected


def test_a_format_holds(client: ollama.Client) -> None:
    schema = {"enum": ["red", "blue"]}
    answer = client.chat("any", HELLO, format=schema, options={**HOT, "seed": 1})  # type: ignore
    assert json.loads(answer.message.content or "") in ("red", "blue")
    answer = client.chat("any", HELLO, format="json", options={**HOT, "seed": 1})
    assert (answer.message.content or "").startswith("{")
    text = client.generate("any", "Hello", format=schema, options={**HOT, "seed": 1}, raw=True)  # type: ignore
    assert json.loads(text.response or "") in ("red", "blue")


def test_log_probabilities_come_if_asked_for(client: ollama.Client, alone: Engine) -> None:
    answer = client.chat("any", HELLO, options=GREEDY, logprobs=True, top_logprobs=2)
    expected = alone.chat("Hello", temperature=0, max_tokens=8, logprobs=2).logprobs
    assert answer.logprobs is not None
    assert [entry.logprob for entry in answer.logprobs] == [entry.logprob for entry in expected]
    assert all(len(entry.top_logprobs or ()) == 2 for entry in answer.logprobs)
    chunks = list(client.chat("any", HELLO, options=GREEDY, logprobs=True, stream=True))
    entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
    assert [entry.logprob for entry in entries] == [entry.logprob for entry in expected]


def test_calls_come_as_objects_and_results_go_back(calling: Running) -> None:
    client = ollama.Client(host=calling.url)
    forward = calling.engine._forward

    def calls_at_once(batch: Any) -> Any:
        logits = forward(batch)
        logits[:, 0] = 1e4  # the token that begins a call; where none may begin, it is masked
        return logits

    calling.engine._forward = calls_at_once  # type: ignore[method-assign]
    try:
        answer = client.chat("any", HELLO, tools=[TOOL], options={**HOT, "seed": 2})
        chunks = list(client.chat("any", HELLO, tools=[TOOL], options={"seed": 2}, stream=True))
    finally:
        calling.engine._forward = forward  # type: ignore[method-assign]
    assert answer.message.tool_calls
    for call in answer.message.tool_calls:
        assert call.function.name == "pick"
        assert call.function.arguments["number"] in (3, 5, 8)
    assert any(chunk.message.tool_calls for chunk in chunks)
    calls = [c.model_dump() for c in answer.message.tool_calls[:1]]
    calls[0]["id"] = "abcdefghi"
    history = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "7", "tool_name": "pick"},
        {"role": "user", "content": "Well"},
    ]
    assert client.chat("any", history, tools=[TOOL], options=GREEDY).message.content


# ---- texts ---------------------------------------------------------------------------------------


def test_a_prompt_goes_through_the_template_unless_it_is_raw(
    client: ollama.Client, alone: Engine
) -> None:
    assert client.generate("any", "Hello", options=GREEDY).response == said(alone)
    raw = alone.generate("Hello", temperature=0, max_tokens=8).text
    assert client.generate("any", "Hello", options=GREEDY, raw=True).response == raw
    chunks = list(client.generate("any", "Hello", options=GREEDY, raw=True, stream=True))
    assert "".join(chunk.response or "" for chunk in chunks) == raw
    messages = [{"role": "system", "content": "Be brief"}, *HELLO]
    expected = alone.chat(messages, temperature=0, max_tokens=8).text
    found = client.generate("any", "Hello", system="Be brief", options=GREEDY).response
    assert found == expected


def test_nothing_is_asked_to_see_that_the_model_is_there(
    server: Running, client: ollama.Client
) -> None:
    assert client.generate("any").done_reason == "load"
    assert client.chat("any").done_reason == "load"
    [line] = lines_of(server.post("/api/generate", {"model": "any", "keep_alive": 0}))
    assert (line["response"], line["done"]) == ("", True)


def test_vectors_are_those_of_python(client: ollama.Client, alone: Engine) -> None:
    texts = ["Hello", "Somebody else"]
    answer = client.embed("any", texts)
    assert np.float32(answer.embeddings).tolist() == alone.embed(texts).tolist()
    assert answer.prompt_eval_count == sum(len(alone.tokenizer.encode(text)) for text in texts)
    assert len(client.embed("any", "Hello", dimensions=8).embeddings[0]) == 8
    old = client.embeddings("any", "Hello").embedding
    assert np.float32(old).tolist() == alone.embed(["Hello"])[0].tolist()


def test_a_text_that_does_not_fit_is_truncated_only_if_asked(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="too many"):
        client.embed("any", "word " * 2000)
    assert client.embed("any", "word " * 2000, truncate=True).prompt_eval_count == 1024


# ---- lists ---------------------------------------------------------------------------------------


def test_the_one_model_is_listed_shown_and_running(
    server: Running, client: ollama.Client, alone: Engine
) -> None:
    [model] = client.list().models
    assert model.model == f"{server.service.model}:latest"
    assert model.size == alone.memory.weights
    assert model.details is not None and model.details.quantization_level == "Q4_0"
    [running] = client.ps().models
    assert running.digest == model.digest
    assert running.context_length == 1024
    shown = client.show("any")
    assert shown.template == alone.template.template
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["general.parameter_count"] == alone.num_parameters > 0
    assert shown.modelinfo["llama.context_length"] == 1024
    assert shown.capabilities == ["completion", "embedding"]


def test_tools_are_a_capability_where_the_template_has_them(calling: Running) -> None:
    capabilities = ollama.Client(host=calling.url).show("any").capabilities
    assert capabilities == ["completion", "embedding", "tools"]


def test_the_version_is_one_that_clients_accept(server: Running) -> None:
    version = server.client.get("/api/version").json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)
    assert server.client.head("/api/version").status_code == 200


def test_a_name_may_have_a_tag_and_strict_wants_it_right(model: Path) -> None:
    settings = Settings(strict=True, grace_seconds=1)
    with servers.running(lambda: servers.load_engine(model), settings) as it:
        servers.wait_until_loaded(it)
        client, name = ollama.Client(host=it.url), it.service.model
        assert client.chat(f"{name}:latest", HELLO, options=GREEDY).done
        with pytest.raises(ollama.ResponseError) as caught:
            client.chat("other", HELLO)
        assert caught.value.status_code == 404
        with pytest.raises(ollama.ResponseError, match="num_thread"):
            client.chat(name, HELLO, options={"num_thread": 4})


# ---- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "fields", "found"),
    [
        ("/api/chat", {"messages": 5}, "messages"),
        ("/api/chat", {"messages": [5]}, "messages[0]"),
        ("/api/chat", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["a"]}]}, "images"),
        ("/api/chat", {"messages": HELLO, "options": 5}, "options"),
        ("/api/chat", {"messages": HELLO, "options": {"temperature": "hot"}}, "temperature"),
        ("/api/chat", {"messages": HELLO, "options": {"num_predict": -3}}, "num_predict"),
        ("/api/chat", {"messages": HELLO, "options": {"mirostat": 2}}, "mirostat"),
        ("/api/chat", {"messages": HELLO, "options": {"tfs_z": 0.5}}, "tfs_z"),
        ("/api/chat", {"messages": HELLO, "format": 5}, "format"),
        ("/api/chat", {"messages": HELLO, "format": {"not": {}}}, "/not"),
        ("/api/chat", {"messages": HELLO, "think": True}, "does not support thinking"),
        ("/api/chat", {"messages": HELLO, "think": 5}, "think"),
        ("/api/chat", {"messages": HELLO, "tools": [TOOL]}, "tools"),
        ("/api/chat", {"messages": HELLO, "stream": "no"}, "stream"),
        ("/api/chat", {"messages": [{"role": "user", "content": "word " * 3000}]}, "too many"),
        ("/api/generate", {"prompt": 5}, "prompt"),
        ("/api/generate", {"prompt": "x", "images": ["a"]}, "images"),
        ("/api/generate", {"prompt": "x", "context": [1]}, "context"),
        ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "template"),
        ("/api/generate", {"prompt": "x", "suffix": "y"}, "suffix"),
        ("/api/generate", {"prompt": "x", "raw": 1}, "raw"),
        ("/api/embed", {}, "input"),
        ("/api/embed", {"input": 5}, "input"),
        ("/api/embed", {"input": "x", "dimensions": 0}, "dimensions"),
        ("/api/embeddings", {"prompt": ""}, "prompt"),
        ("/api/show", {"model": 5}, "model"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_cannot_be_is_a_400_in_ollamas_shape(
    server: Running, path: str, fields: dict[str, Any], found: str
) -> None:
    response = server.post(path, fields)
    assert response.status_code == 400
    body = response.json()
    assert list(body) == ["error"]
    assert found in body["error"]
    assert server.chat(max_tokens=1).status_code == 200


def test_options_without_an_effect_are_listed(server: Running) -> None:
    options = {**GREEDY, "num_ctx": 512, "wings": 2}
    body = {"messages": HELLO, "options": options, "keep_alive": "5m", "truncate": True}
    response = server.post("/api/chat", body)
    ignored = response.headers["x-ignored-params"].split(", ")
    assert set(ignored) == {"truncate", "options.num_ctx", "options.wings", "keep_alive"}


def test_a_failure_within_a_stream_is_a_line(server: Running) -> None:
    forward = server.engine._forward
    passes = itertools.count()

    def fails(batch: Any) -> Any:
        if next(passes):
            raise RuntimeError("a secret of ours")
        return forward(batch)

    body = {"messages": HELLO, "options": GREEDY}
    server.engine._forward = fails  # type: ignore[method-assign]
    try:
        lines = lines_of(server.post("/api/chat", body))
        nothing_said = server.post("/api/chat", body)
    finally:
        server.engine._forward = forward  # type: ignore[method-assign]
    assert list(lines[-1]) == ["error"]
    assert "secret" not in lines[-1]["error"]
    assert nothing_said.status_code == 500  # there is time for a status of its own
    assert nothing_said.json() == lines[-1]
    assert server.chat().status_code == 200
