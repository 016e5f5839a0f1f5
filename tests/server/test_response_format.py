"""Replies that must have a form: whatever the model would say, it has it."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import openai
import pydantic
import pytest

from servers import Running, error_of, events_of

COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}},
          "required": ["colour"], "additionalProperties": False}  # fmt: skip
HOT = {"temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 200}
UNENFORCEABLE = {"type": "object", "properties": {"tags": {"uniqueItems": True}}}


def content(server: Running, **fields: Any) -> str:
    response = server.chat(**{**HOT, **fields})
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {
            "name": "c", "schema": COLOUR, "strict": True}}},
        {"response_format": {"type": "json_schema", "schema": COLOUR}},
        {"response_format": {"type": "json_object", "schema": COLOUR}},
        {"json_schema": COLOUR},
        {"guided_json": COLOUR},
    ],
    ids=["openai", "short", "llama.cpp", "extra", "vllm"],
)  # fmt: skip
def test_a_reply_is_valid_under_its_schema(server: Running, fields: dict[str, Any]) -> None:
    for seed in range(3):
        jsonschema.validate(json.loads(content(server, seed=seed, **fields)), COLOUR)
    chunks = events_of(server.chat(stream=True, **{**HOT, "seed": 2, **fields}))[:-1]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    assert text == content(server, seed=2, **fields)


def test_a_reply_that_must_be_an_object_begins_as_one(server: Running) -> None:
    text = content(server, response_format={"type": "json_object"})
    assert text.startswith("{")


def test_expressions_grammars_and_choices_hold_too(server: Running) -> None:
    assert re.fullmatch("a[0-9]{3}", content(server, regex="a[0-9]{3}"))
    assert re.fullmatch("a[0-9]{3}", content(server, guided_regex="a[0-9]{3}"))
    assert content(server, grammar='start: "x" ("y" | "z")') in ("xy", "xz")
    assert content(server, grammar='root ::= "x" | "y"') in ("x", "y")
    assert content(server, guided_choice=["a.b", "c|d"]) in ("a.b", "c|d")
    body = {"prompt": "Hello", "regex": "[ab]{4}", **HOT}
    assert re.fullmatch(
        "[ab]{4}", server.post("/v1/completions", body).json()["choices"][0]["text"]
    )


def test_the_openai_client_parses_what_it_asked_for(server: Running) -> None:
    class Answer(pydantic.BaseModel):
        is_true: bool
        score: int = pydantic.Field(ge=0, le=99)

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        answer = client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": "Hello"}], response_format=Answer,
            max_tokens=200, seed=1,
        )  # fmt: skip
    parsed = answer.choices[0].message.parsed
    assert parsed is not None and 0 <= parsed.score <= 99


@pytest.mark.parametrize(
    ("fields", "param", "found"),
    [
        ({"response_format": 5}, "response_format", "type"),
        ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "schema"),
        ({"response_format": {"type": "json_object", "schema": UNENFORCEABLE}},
         "response_format", "/properties/tags/uniqueItems"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": UNENFORCEABLE}}},
         "response_format", "/properties/tags/uniqueItems"),
        ({"json_schema": {"$ref": "#/nowhere"}}, "json_schema", "/$ref"),
        ({"json_schema": 5}, "json_schema", "the schema"),
        ({"json_schema": "{"}, "json_schema", "JSON"),
        ({"json_schema": {"a": "\ud800"}}, "json_schema", "/a"),
        ({"regex": "("}, "regex", "unclosed"),
        ({"regex": 5}, "regex", "string"),
        ({"regex": "(a{1000}){1000}"}, "regex", "repetitions"),
        ({"grammar": "nonsense"}, "grammar", "GBNF"),
        ({"grammar": ["x"]}, "grammar", "string"),
        ({"guided_choice": []}, "guided_choice", "list"),
        ({"guided_choice": "a"}, "guided_choice", "list"),
        ({"regex": "a", "grammar": 'start: "a"'}, "grammar", "one constraint"),
        ({"regex": "a", "response_format": {"type": "json_object"}}, "regex", "one constraint"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_cannot_be_enforced_is_a_400_that_says_where(
    server: Running, fields: dict[str, Any], param: str, found: str
) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], **fields}
    response = server.client.post("/v1/chat/completions", content=json.dumps(body))
    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == param
    assert found in error["message"]
    assert server.chat(max_tokens=1).status_code == 200
