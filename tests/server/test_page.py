"""The chat page's files, as the server gives them out."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import servers
from inferno.server import page
from inferno.server.guard import Access

INDEX = b"<!doctype html><title>page</title>"
SCRIPT = b"console.log(1);" * 100


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A page that was built, in a folder of its own."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(INDEX)
    (tmp_path / "assets/index-a1.js").write_bytes(SCRIPT)
    monkeypatch.setattr(page, "STATIC", tmp_path)
    page._files.cache_clear()
    yield tmp_path
    page._files.cache_clear()


def test_the_page_may_load_and_ask_for_nothing_from_elsewhere(
    server: servers.Running, static: Path
) -> None:
    answer = server.client.get("/")
    assert answer.content == INDEX
    assert answer.headers["content-type"].startswith("text/html")
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"


def test_a_file_named_by_its_contents_is_kept_for_ever_and_the_page_asked_for_anew(
    server: servers.Running, static: Path
) -> None:
    assert "immutable" in server.client.get("/assets/index-a1.js").headers["cache-control"]
    assert server.client.get("/").headers["cache-control"] == "no-cache"


def test_files_come_packed_to_who_can_unpack_them(server: servers.Running, static: Path) -> None:
    with httpx.stream(
        "GET", f"{server.url}/assets/index-a1.js", headers={"accept-encoding": "gzip"}
    ) as answer:
        raw = b"".join(answer.iter_raw())
    assert len(raw) < len(SCRIPT)
    assert gzip.decompress(raw) == SCRIPT
    plain = server.client.get("/assets/index-a1.js", headers={"accept-encoding": "identity"})
    assert plain.content == SCRIPT


@pytest.mark.parametrize("path", ["/assets/none.js", "/assets/..%2findex.html", "/assets/%2e%2e"])
def test_there_are_no_other_files(server: servers.Running, static: Path, path: str) -> None:
    assert server.client.get(path).status_code == 404


def test_a_page_that_was_not_built_says_how_to(
    server: servers.Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "STATIC", tmp_path)
    answer = server.client.get("/")
    assert answer.status_code == 200
    assert "make page" in answer.text


def test_who_has_no_key_sees_the_page_and_nothing_else(model: Path, static: Path) -> None:
    with servers.running(lambda: servers.load_engine(model), access=Access(keys=["secret"])) as it:
        servers.wait_until_loaded(it)
        assert it.client.get("/").content == INDEX
        assert it.client.get("/assets/index-a1.js").status_code == 200
        assert it.client.get("/props").status_code == 401
