"""Requests made up from the server's own description: whatever they say, no answer is a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck

import engines
import servers
from inferno import Engine
from inferno.server.app import create_app
from inferno.server.conversations import Conversations
from inferno.server.guard import Access
from inferno.server.service import Loading, Settings

described: Any = schemathesis.openapi.from_dict(create_app(Loading(Settings()), Access()).openapi())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Running]:
    """A server of a context so short that texts without a limit end soon."""
    path = engines.tiny_gguf(tmp_path_factory.mktemp("small") / "a.gguf", context=128)

    def load() -> Engine:
        engine = servers.load_engine(path)
        engine.prefix_cache.capacity = 1 << 22
        return engine

    with servers.running(load, conversations=Conversations("sqlite://")) as it:
        yield servers.wait_until_loaded(it)


@described.parametrize()
@hypothesis.settings(
    max_examples=8, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_request_is_answered_with_a_mistake_of_ours(case: Any, small: servers.Running) -> None:
    response = case.call(base_url=small.url, timeout=servers.PATIENCE)
    assert response.status_code < 500 or case.path == "/slots"
    if response.status_code >= 400:
        assert response.json()["error"]


def test_every_endpoint_is_described_and_what_it_reads(server: servers.Running) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    expected = {
        "/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/compose",
        "/health", "/metrics", "/tokenize", "/detokenize", "/apply-template", "/tokenizer_info",
        "/props", "/api/version", "/api/tags", "/api/show", "/api/ps", "/api/chat",
        "/api/generate", "/api/embed",
    }  # fmt: skip
    assert expected <= set(paths)
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation["summary"]
            assert method != "post" or "requestBody" in operation, path
