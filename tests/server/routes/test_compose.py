"""Drafts that are read while they are typed: they save work, and change nothing."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import Any

import pytest

from inferno import Engine
from servers import Running, error_of

SYSTEM = {"role": "system", "content": "You answer."}


def messages(draft: Any) -> list[dict[str, Any]]:
    return [SYSTEM, {"role": "user", "content": draft}]


def compose(server: Running, draft: Any, **options: Any) -> Any:
    return server.post("/v1/compose", {"messages": messages(draft)}, **options)


def test_a_draft_that_was_typed_is_read_when_it_is_sent(server: Running, alone: Engine) -> None:
    draft = "Please tell me all about the rivers of the north, and do not leave any of them out."
    committed = 0
    for end in range(1, len(draft) + 1, 3):
        body = compose(server, draft[:end]).json()
        assert body["committed_tokens"] == body["total_tokens"]
        assert body["cached_tokens"] >= committed - 4  # all but what was tokenized anew
        committed = body["committed_tokens"]
    answer = server.chat(messages=messages(draft)).json()
    expected = alone.chat(messages(draft), temperature=0, max_tokens=8)
    assert answer["choices"][0]["message"]["content"] == expected.text
    left = answer["usage"]["prompt_tokens"] - answer["inferno"]["cached_tokens"]
    # The end of the turn and the beginning of the answer, which no draft has.
    assert left <= len(alone.tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n", True)) + 2


@pytest.mark.parametrize(
    ("draft", "held_back"), [("tell m", 1), ("tell me ", 0), ("tell me.", 0), ("tell me\n", 0)]
)
def test_the_last_token_is_held_back_until_it_is_settled(
    server: Running, alone: Engine, draft: str, held_back: int
) -> None:
    whole = alone.encode_chat(messages(draft), False, continue_final_message=True)
    assert compose(server, draft).json()["total_tokens"] == len(whole) - held_back


def test_a_draft_may_be_empty_or_in_parts(server: Running) -> None:
    assert compose(server, "").json()["total_tokens"] > 0
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there "}]
    assert (
        compose(server, parts).json()["total_tokens"]
        == (compose(server, "Hello there ").json()["total_tokens"])
    )


def test_the_newest_draft_of_a_session_takes_the_place_of_older_ones(server: Running) -> None:
    gate, entered = threading.Event(), threading.Event()
    forward = server.engine._forward

    def watched(batch: Any) -> Any:
        entered.set()
        assert gate.wait(60)
        return forward(batch)

    server.engine._forward = watched  # type: ignore[method-assign]
    headers = {"x-session-id": "somebody"}
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first = pool.submit(compose, server, "never read " * 60, headers=headers)
            assert entered.wait(60)
            second = pool.submit(compose, server, "read at last. ", headers=headers)
            while not server.service.scheduler.num_waiting:
                entered.wait(0.01)
            gate.set()
            older, newer = first.result(), second.result()
    finally:
        server.engine._forward = forward  # type: ignore[method-assign]
        gate.set()
    assert older.status_code == newer.status_code == 200
    assert older.json()["committed_tokens"] < older.json()["total_tokens"]
    assert newer.json()["committed_tokens"] == newer.json()["total_tokens"]
    assert newer.headers["x-session-id"] == "somebody"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": [SYSTEM]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [5]}]},
        {"messages": [{"role": "user", "content": "word " * 3000}]},
    ],
)
def test_what_is_no_draft_is_a_400(server: Running, body: Any) -> None:
    response = server.post("/v1/compose", body)
    assert response.status_code == 400
    error_of(response)


def test_a_session_has_a_plain_name(server: Running) -> None:
    response = compose(server, "Hello", headers={"x-session-id": "a b"})
    assert error_of(response)["param"] == "x-session-id"


def test_a_draft_that_is_sent_as_it_was_read_needs_no_pass(server: Running, alone: Engine) -> None:
    name = {"x-session-id": "typist"}
    draft = "What is it that nobody has read bef"
    for end in (5, 20, len(draft)):
        assert compose(server, draft[:end], headers=name).status_code == 200
    passes: list[int] = []
    forward = server.engine._forward
    server.engine._forward = lambda b: passes.append(1) or forward(b)  # type: ignore
    try:
        answer = server.chat(messages=messages(draft), max_tokens=1, headers=name).json()
    finally:
        server.engine._forward = forward  # type: ignore[method-assign]
    assert not passes
    assert (
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        == (answer["usage"]["prompt_tokens"])
    )
    expected = alone.chat(messages(draft), temperature=0, max_tokens=1)
    assert answer["choices"][0]["message"]["content"] == expected.text


def test_drafts_leave_no_more_pages_than_the_last_of_them_has(server: Running) -> None:
    engine = server.engine
    text = "a draft of which every beginning was read, with the end of a turn after each of them"
    engine.prefix_cache.clear()
    for end in range(1, len(text) + 1):
        compose(server, text[:end], headers={"x-session-id": "many"})
    prompt = engine.encode_chat(messages(text))
    assert engine.prefix_cache.num_pages == -(-len(prompt) // 64)
    assert engine._loaded.pages.pages_in_use == engine.prefix_cache.num_pages
