"""A Hugging Face hub of paper, on this machine: what `huggingface_hub` asks one, and its mishaps.

Knows nothing of inferno. `python fake_hub.py` is no program; tests start it in a thread.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

LARGE = 64  # bytes from which a file counts as stored with LFS here


@dataclass
class Repository:
    files: dict[str, bytes]
    licence: str = "apache-2.0"
    gated: bool = False
    is_private: bool = False
    version: int = 1

    @property
    def commit(self) -> str:
        return hashlib.sha1(b"%d" % self.version).hexdigest()


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class FakeHub:
    """`repositories` by name; `cuts` says after how many bytes the next transfers of a file end."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    altered: set[str] = field(default_factory=set)
    statuses: dict[str, int] = field(default_factory=dict)  # of paths that end so
    ignores_ranges: bool = False
    on_transfer: Callable[[str], None] = lambda name: None
    tokens: frozenset[str] = frozenset({"hf_right"})

    def transfers(self, name: str = "") -> list[Request]:
        return [
            r
            for r in self.requests
            if r.method == "GET" and "/resolve/" in r.path and r.path.endswith(name)
        ]


def etag(content: bytes) -> str:
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def running() -> Iterator[FakeHub]:
    """Serve on a free port until the block ends."""
    hub = FakeHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlparse(self.path).path)
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
        self.hub.requests.append(Request(self.command, path, self.headers.get("range"), token))
        for end, status in self.hub.statuses.items():
            if path.endswith(end):
                return self._send(status, b"{}")
        if path.startswith("/api/models/"):
            return self._describe(path.removeprefix("/api/models/"), token)
        name, found, rest = path.lstrip("/").partition("/resolve/")
        if not found:
            return self._send(404, b"{}")
        return self._transfer(name, rest.partition("/")[2], token)

    def _repository(self, name: str, token: str | None) -> Repository | None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.is_private and token not in self.hub.tokens):
            # The real one does not say which of both it is.
            self._send(401, b'{"error": "Invalid username or password."}', code="RepoNotFound")
            return None
        return repository

    def _describe(self, name: str, token: str | None) -> None:
        repository = self._repository(name, token)
        if repository is None:
            return
        siblings = []
        for file, content in repository.files.items():
            sibling = {"rfilename": file, "size": len(content), "blobId": "0" * 40}
            if len(content) >= LARGE:
                sibling["lfs"] = {"sha256": etag(content), "size": len(content), "pointerSize": 130}
            else:
                sibling["blobId"] = etag(content)
            siblings.append(sibling)
        self._send(
            200,
            json.dumps(
                {
                    "id": name,
                    "modelId": name,
                    "sha": repository.commit,
                    "private": False,
                    "gated": "manual" if repository.gated else False,
                    "tags": [],
                    "downloads": 0,
                    "cardData": {"license": repository.licence},
                    "siblings": siblings,
                }
            ).encode(),
        )

    def _transfer(self, name: str, file: str, token: str | None) -> None:
        repository = self._repository(name, token)
        if repository is None:
            return
        if repository.gated and token not in self.hub.tokens:
            return self._send(403 if token else 401, b"{}", code="GatedRepo")
        content = repository.files.get(file)
        if content is None:
            return self._send(404, b"{}", code="EntryNotFound")
        headers = {"X-Repo-Commit": repository.commit, "Accept-Ranges": "bytes"}
        is_large = len(content) >= LARGE
        headers["X-Linked-Etag" if is_large else "ETag"] = f'"{etag(content)}"'
        if is_large:
            headers["X-Linked-Size"] = str(len(content))
        if self.command == "HEAD":
            return self._send(200, content, **headers)
        self.hub.on_transfer(file)
        if file in self.hub.altered:
            content = bytes([content[0] ^ 1]) + content[1:]
        status, start = 200, 0
        asked = self.headers.get("range")
        if asked and not self.hub.ignores_ranges:
            status, start = 206, int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        cuts = self.hub.cuts.get(file)
        end = start + cuts.pop(0) if cuts else None
        self._send(status, content[start:], sent=content[start:end], **headers)
        return None

    def _send(
        self,
        status: int,
        body: bytes,
        *,
        code: str = "",
        sent: bytes | None = None,
        **headers: str,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if sent is None else sent)
        if sent is not None and len(sent) < len(body):
            self.close_connection = True
