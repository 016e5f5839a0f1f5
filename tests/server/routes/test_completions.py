"""Raw prompts over HTTP: lists of them, scored, echoed, streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

import engines
import servers
from inferno import Engine
from servers import Running, error_of, events_of

GREEDY = {"temperature": 0, "max_tokens": 6}


def complete(server: Running, prompt: Any, **fields: Any) -> Any:
    return server.post("/v1/completions", {"prompt": prompt, **GREEDY, **fields})


def test_a_text_is_gone_on_with_as_python_does(server: Running, alone: Engine) -> None:
    body = complete(server, "Hello").json()
    assert body["object"] == "text_completion"
    [choice] = body["choices"]
    assert choice["text"] == alone.generate("Hello", **GREEDY).text
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None


def test_prompts_are_text_ids_or_lists_of_either(server: Running, alone: Engine) -> None:
    ids = alone.encode_prompt("Hello there")
    for prompt in ("Hello there", ids, ["Hello there"], [ids]):
        [choice] = complete(server, prompt).json()["choices"]
        assert choice["text"] == alone.generate("Hello there", **GREEDY).text
    body = complete(server, ["Hello", ids], n=2, seed=1, temperature=1).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    for index, (prompt, choice) in enumerate([("Hello", 0), ("Hello", 1), (ids, 0), (ids, 1)]):
        expected = alone.generate(prompt, max_tokens=6, temperature=1, seed=1, choice=choice)
        assert body["choices"][index]["text"] == expected.text
    assert body["usage"]["prompt_tokens"] == len(alone.encode_prompt("Hello")) + len(ids)


def test_the_openai_client_reads_an_answer_and_a_stream(server: Running, alone: Engine) -> None:
    with openai.OpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
        expected = alone.generate("Hello", **GREEDY).text
        answer = client.completions.create(
            model="m", prompt="Hello", temperature=0, max_tokens=6, logprobs=2
        )
        assert answer.choices[0].text == expected
        stream = client.completions.create(
            model="m", prompt="Hello", temperature=0, max_tokens=6, stream=True
        )
        assert "".join(chunk.choices[0].text for chunk in stream) == expected


def test_a_stream_ends_with_a_reason_and_its_usage(server: Running) -> None:
    events = events_of(
        complete(server, "Hello", stream=True, stream_options={"include_usage": True}, logprobs=1)
    )
    assert events[-1] == "[DONE]"
    assert events[-2]["usage"]["completion_tokens"] == 6
    reasons = [e["choices"][0]["finish_reason"] for e in events[:-2]]
    assert [reason for reason in reasons if reason] == ["length"] == reasons[-1:]
    tokens = [t for e in events[:-2] for t in e["choices"][0]["logprobs"]["tokens"]]
    whole = complete(server, "Hello", logprobs=1).json()["choices"][0]["logprobs"]
    assert tokens == whole["tokens"]


@pytest.mark.parametrize("top", [0, 1, 5])
def test_scoring_gives_the_log_probabilities_of_the_prompt(
    server: Running, alone: Engine, top: int
) -> None:
    """Against a softmax in numpy, of logits that were computed alone."""
    ids = alone.encode_prompt("Once upon a time, the end")
    fields = {"echo": True, "logprobs": top, "max_tokens": 1}
    [choice] = complete(server, ids, **fields).json()["choices"]
    logprobs = choice["logprobs"]
    logits = alone.logits(ids).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    assert len(logprobs["token_logprobs"]) == len(ids) + 1
    for position in range(1, len(ids)):
        found = logprobs["token_logprobs"][position]
        # Logits are float32 of some 10: half a unit in their last place.
        assert abs(found - expected[position - 1, ids[position]]) < 1e-5
        best = logprobs["top_logprobs"][position]
        assert best[logprobs["tokens"][position]] >= found
        assert 1 <= len(best) <= top + 1  # of tokens that are spelled alike, one
    assert "".join(logprobs["tokens"]) == choice["text"]
    offsets = np.cumsum([0, *map(len, logprobs["tokens"])])[:-1]
    assert logprobs["text_offset"] == offsets.tolist()


def test_a_greedy_token_has_the_very_float_of_the_best(server: Running) -> None:
    """Harnesses decide by `==` whether a continuation was the greedy one."""
    [choice] = complete(server, "Hello", logprobs=1, max_tokens=5).json()["choices"]
    logprobs = choice["logprobs"]
    for chosen, best in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert chosen == max(best.values())


def test_no_tokens_may_be_asked_for(server: Running) -> None:
    [choice] = complete(server, "Hello", max_tokens=0).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("", "length")
    [choice] = complete(server, "Hello", max_tokens=0, echo=True, logprobs=0).json()["choices"]
    assert choice["text"] == "Hello"
    assert choice["logprobs"]["token_logprobs"][0] is None


def test_an_empty_prompt_is_the_token_that_begins_every_text(stories_gguf: Path) -> None:
    alone = engines.load(stories_gguf)
    with servers.running(lambda: servers.load_engine(stories_gguf)) as it:
        servers.wait_until_loaded(it)
        expected = alone.generate("", **GREEDY).text
        for prompt in ("", [""], [[1]]):
            [choice] = complete(it, prompt).json()["choices"]
            assert choice["text"] == expected
        body = complete(it, "", max_tokens=0).json()
        assert (body["choices"][0]["text"], body["usage"]["prompt_tokens"]) == ("", 1)
        assert complete(it, []).status_code == 400
        assert complete(it, "Once").status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),  # this model has no BOS
        ({"prompt": [""]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt[0]"),
        ({"prompt": [[1.5]]}, None),
        ({"prompt": [99999999]}, None),
        ({"prompt": [-1]}, None),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True, "stream": True}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt": "word " * 3000}, "prompt"),
        ({"prompt": ["a"] * 81}, "prompt"),  # 16 at a time, and 64 that wait
        ({"prompt": ["a"] * 21, "n": 4}, "prompt"),
    ],
)
def test_what_cannot_be_is_a_400(
    server: Running, fields: dict[str, Any], param: str | None
) -> None:
    response = server.post("/v1/completions", {"prompt": "Hello", **GREEDY, **fields})
    assert response.status_code == 400
    assert error_of(response)["param"] == param
    assert complete(server, "Hello").status_code == 200
