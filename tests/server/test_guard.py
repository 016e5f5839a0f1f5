"""Who may ask: keys, hosts, origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import servers
from inferno.server.guard import Access
from servers import Running, error_of

KEYS = ["first-secret-key", "second-secret-key"]
PAGE = "https://chat.example"


@pytest.fixture(scope="module")
def guarded(model: Path) -> Iterator[Running]:
    access = Access(hosts=["engine.example"], origins=[PAGE], keys=KEYS)
    with servers.running(lambda: servers.load_engine(model), access=access) as it:
        yield servers.wait_until_loaded(it)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_key_opens_in_either_header(guarded: Running, key: str, header: str) -> None:
    value = f"Bearer {key}" if header == "authorization" else key
    assert guarded.client.get("/v1/models", headers={header: value}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {KEYS[0]}"},
        {"authorization": "Bearer"},
        {"x-api-key": KEYS[0][:-1]},
        {"x-api-key": ""},
        {"authorization": b"Bearer \xff\xfe"},
    ],
)
def test_no_key_or_a_wrong_one_is_a_401(guarded: Running, headers: dict[str, str]) -> None:
    for path in ("/v1/models", "/metrics", "/nothing"):
        response = guarded.client.get(path, headers=headers)
        assert response.status_code == 401
        assert error_of(response)["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"


def test_health_is_public(guarded: Running) -> None:
    assert guarded.client.get("/health").status_code == 200
    assert guarded.client.head("/health").status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9", "127.0.0.1", "[::1]:8080", "10.0.0.5:80", "a.localhost",
             "engine.example", "ENGINE.example:443"]
)  # fmt: skip
def test_addresses_and_names_of_ours_are_answered(guarded: Running, host: str) -> None:
    assert guarded.client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::1", "x" * 300])
def test_a_name_that_was_bound_anew_is_a_403(guarded: Running, host: str) -> None:
    response = guarded.client.get("/health", headers={"host": host})
    assert response.status_code == 403
    assert error_of(response)["type"] == "permission_error"


def test_pages_of_other_origins_are_refused_and_ours_are_not(guarded: Running) -> None:
    def status(origin: str) -> int:
        return guarded.client.get("/health", headers={"origin": origin}).status_code

    assert status(PAGE) == status(guarded.url) == 200
    for origin in ("https://evil.example", "null", "http://localhost:1", f"{PAGE}.evil.example"):
        assert status(origin) == 403


def test_a_browser_may_ask_before_it_sends_a_key(guarded: Running) -> None:
    headers = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, x-stainless-os, x-session-id",
    }
    response = guarded.client.options("/v1/chat/completions", headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    allowed = response.headers["access-control-allow-headers"]
    assert "x-stainless-os" in allowed and "x-session-id" in allowed


def test_without_origins_no_page_is_told_that_it_may(server: Running) -> None:
    response = server.client.get("/health", headers={"origin": server.url})
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
