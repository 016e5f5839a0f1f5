"""Vectors over HTTP: those of Python, in OpenAI's two encodings."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import openai
import pytest

from inferno import Engine
from servers import Running, error_of

TEXTS = ["Hello there", "An entirely different text, and a longer one."]


def embed(server: Running, **fields: Any) -> Any:
    return server.post("/v1/embeddings", {"input": TEXTS, **fields})


def test_vectors_are_those_of_python_in_the_order_of_the_texts(
    server: Running, alone: Engine
) -> None:
    body = embed(server).json()
    assert body["object"] == "list"
    assert [entry["index"] for entry in body["data"]] == [0, 1]
    vectors = np.array([entry["embedding"] for entry in body["data"]], np.float32)
    assert (vectors == alone.embed(TEXTS)).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    tokens = sum(len(alone.tokenizer.encode(text)) for text in TEXTS)
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_base64_is_of_little_endian_floats(server: Running, alone: Engine) -> None:
    body = embed(server, encoding_format="base64").json()
    for entry, expected in zip(body["data"], alone.embed(TEXTS), strict=True):
        found = np.frombuffer(base64.b64decode(entry["embedding"]), "<f4")
        assert (found == expected).all()


def test_the_openai_client_reads_both_encodings(server: Running, alone: Engine) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        for more in ({}, {"encoding_format": "float"}):  # the client's own choice is base64
            answer = client.embeddings.create(model="m", input=TEXTS, **more)  # type: ignore
            vectors = np.array([entry.embedding for entry in answer.data], np.float32)
            assert (vectors == alone.embed(TEXTS)).all()


def test_texts_come_alone_in_lists_and_as_ids(server: Running, alone: Engine) -> None:
    ids = alone.tokenizer.encode(TEXTS[0])
    expected = alone.embed(TEXTS[:1])[0].tolist()
    for value in (TEXTS[0], [TEXTS[0]], ids, [ids]):
        [entry] = embed(server, input=value).json()["data"]
        assert np.float32(entry["embedding"]).tolist() == expected


def test_many_texts_are_as_each_alone(server: Running, alone: Engine) -> None:
    texts = [f"Number {n} " * (n % 7 + 1) for n in range(40)]
    body = embed(server, input=texts).json()
    for text, entry in zip(texts, body["data"], strict=True):
        assert np.float32(entry["embedding"]).tolist() == alone.embed([text])[0].tolist()


def test_fewer_dimensions_are_the_first_of_them_at_length_one(
    server: Running, alone: Engine
) -> None:
    whole = alone.embed(TEXTS)
    body = embed(server, dimensions=8).json()
    for entry, vector in zip(body["data"], whole, strict=True):
        expected = vector[:8] / np.linalg.norm(vector[:8])
        assert np.allclose(entry["embedding"], expected, atol=1e-6)


def test_how_tokens_become_a_vector_can_be_chosen(server: Running, alone: Engine) -> None:
    for pooling in ("last", "cls"):
        vectors = [e["embedding"] for e in embed(server, pooling=pooling).json()["data"]]
        assert np.float32(vectors).tolist() == alone.embed(TEXTS, pooling).tolist()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": [["a"]]}, "input[0]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": {"a": 1}}, "input"),
        ({"input": [1.5]}, "input[0]"),
        ({"input": [-1]}, None),
        ({"input": [10**9]}, None),
        ({"input": [True]}, "input[0]"),
        ({"input": ["x"] * 3000}, "input"),
        ({"input": "word " * 3000}, "input"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 100000}, "dimensions"),
        ({"dimensions": "8"}, "dimensions"),
        ({"pooling": "max"}, "pooling"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_a_400(
    server: Running, fields: dict[str, Any], param: str | None
) -> None:
    response = embed(server, **fields)
    assert response.status_code == 400
    assert error_of(response)["param"] == param
    assert embed(server).status_code == 200
