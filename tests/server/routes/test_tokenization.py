"""Text to ids and back over HTTP, in the words of llama.cpp and of vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from inferno import Engine
from servers import Running, error_of

TEXT = "Grüße, 世界 🙂 <|im_end|>"


def test_text_comes_back_from_its_ids(server: Running, alone: Engine) -> None:
    for key in ("content", "prompt"):
        tokens = server.post("/tokenize", {key: TEXT}).json()["tokens"]
        assert tokens == alone.tokenizer.encode(TEXT, special=True)
        back = server.post("/v1/detokenize", {"tokens": tokens}).json()
        assert back == {"content": TEXT, "prompt": TEXT}


def test_control_tokens_in_text_count_only_if_they_should(server: Running, alone: Engine) -> None:
    body = server.post("/tokenize", {"content": TEXT, "parse_special": False}).json()
    assert body["tokens"] == alone.tokenizer.encode(TEXT)
    assert body["count"] == len(body["tokens"])


def test_pieces_are_text_or_bytes(server: Running, alone: Engine) -> None:
    body = server.post("/tokenize", {"content": "é", "with_pieces": True}).json()
    data = b"".join(
        piece.encode() if isinstance(piece := token["piece"], str) else bytes(piece)
        for token in body["tokens"]
    )
    assert data == "é".encode()


def test_the_template_is_applied_and_not_answered(server: Running, alone: Engine) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    body = server.post("/apply-template", {"messages": messages}).json()
    assert body == {"prompt": alone.template.render(messages)}


def test_the_tokenizer_is_described(server: Running) -> None:
    body = server.client.get("/tokenizer_info").json()
    assert body["eos_token"] == "<|im_end|>"
    assert "message" in body["chat_template"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"content": 5}),
        ("/tokenize", {"content": "a", "with_pieces": "yes"}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": "a"}),
        ("/detokenize", {"tokens": [1.5]}),
        ("/detokenize", {"tokens": [True]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [10**12]}),
        ("/apply-template", {}),
        ("/apply-template", {"messages": [{"role": "user"}]}),
    ],
)
def test_what_cannot_be_is_a_400(server: Running, path: str, body: Any) -> None:
    response = server.post(path, body)
    assert response.status_code == 400
    error_of(response)
