"""Bodies that are too large, broken, slow or endless: a 4xx, and the server goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from inferno.server.body import MAX_BODY_BYTES
from servers import Running, error_of

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"[]",
        b"null",
        b"5",
        b'"text"',
        b"{'messages': []}",
        b'{"messages": [}',
        b'{"temperature": NaN}',
        b'{"temperature": -Infinity}',
        b'{"a": "\xe6\xad"}',
        b"\xff\xfe{\x00}\x00",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"n": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_no_json_object_is_a_400(server: Running, body: bytes) -> None:
    for path in (CHAT, "/v1/completions", "/v1/compose", "/tokenize"):
        response = server.client.post(path, content=body)
        assert response.status_code == 400
        assert error_of(response)["type"] == "invalid_request_error"
    assert server.chat(max_tokens=1).status_code == 200


def test_a_byte_order_mark_is_no_mistake(server: Running) -> None:
    response = server.client.post("/tokenize", content=b'\xef\xbb\xbf{"content": "a"}')
    assert response.status_code == 200


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 50 << 20])
def test_a_body_of_many_megabytes_is_a_413_that_the_client_gets_to_read(
    server: Running, size: int
) -> None:
    response = server.client.post(CHAT, content=b"x" * size)
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"
    assert server.chat(max_tokens=1).status_code == 200


def test_a_large_body_of_no_declared_length_is_a_413_too(server: Running) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * (1 << 20)

    assert server.client.post(CHAT, content=chunks()).status_code == 413


def test_a_body_as_large_as_allowed_is_read(server: Running) -> None:
    content = '{"content": "' + "a" * (1 << 16) + '"}'
    padded = content + " " * (MAX_BODY_BYTES - len(content))
    assert server.client.post("/tokenize", content=padded).status_code == 200


def raw(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 60)


def test_a_client_that_leaves_within_its_body_is_forgotten(server: Running) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n"
    with raw(server) as connection:
        connection.sendall(head.encode() + b'{"messages"')
    assert server.chat(max_tokens=1).status_code == 200


def test_a_half_closed_connection_is_no_crash(server: Running) -> None:
    body = b'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}'
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with raw(server) as connection:
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    assert server.chat(max_tokens=1).status_code == 200


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(server: Running) -> None:
    body = b'{"content": "a"}'
    head = f"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    with raw(server) as connection:
        connection.sendall(head.encode() + b"expect: 100-continue\r\nconnection: close\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert b"200 OK" in answer


def test_what_is_no_http_is_refused(server: Running) -> None:
    with raw(server) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
    assert server.client.get("/health").status_code == 200
