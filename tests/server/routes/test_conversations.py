"""`/app/conversations`, as the page asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import servers
from inferno.server.conversations import Conversations
from inferno.server.guard import Access

ROOT = "/app/conversations"


@pytest.fixture(scope="module")
def keeping(model: Path) -> Iterator[servers.Running]:
    """A server that keeps conversations in memory."""
    kept = Conversations("sqlite://")
    with servers.running(lambda: servers.load_engine(model), conversations=kept) as it:
        yield servers.wait_until_loaded(it)


@pytest.fixture
def id(keeping: servers.Running) -> str:
    return str(keeping.post(ROOT, {"title": "Title"}).json()["id"])


def test_a_conversation_is_made_shown_changed_and_deleted(keeping: servers.Running) -> None:
    made = keeping.post(ROOT, {"id": "mine", "title": "Title", "system": "Be brief."})
    assert made.status_code == 201
    assert keeping.client.get(f"{ROOT}/mine").json() == made.json()
    changed = keeping.client.patch(f"{ROOT}/mine", json={"title": "Other", "is_pinned": True})
    assert (changed.json()["title"], changed.json()["is_pinned"]) == ("Other", True)
    listed = keeping.client.get(ROOT, params={"search": "othe"}).json()
    assert [c["id"] for c in listed["data"]] == ["mine"]
    assert keeping.client.delete(f"{ROOT}/mine").status_code == 204
    assert keeping.client.get(f"{ROOT}/mine").status_code == 404


def test_messages_are_kept_and_changed(keeping: servers.Running, id: str) -> None:
    said = {"id": "a", "parent": None, "role": "user", "content": "Hello"}
    assert keeping.post(f"{ROOT}/{id}/messages", said).status_code == 201
    answer = {"id": "b", "parent": "a", "role": "assistant", "content": "", "status": "writing"}
    keeping.post(f"{ROOT}/{id}/messages", answer)
    path = f"{ROOT}/{id}/messages/b"
    changed = keeping.client.patch(path, json={"content": "Hi", "status": "complete"}).json()
    assert (changed["content"], changed["status"]) == ("Hi", "complete")
    assert keeping.client.get(f"{ROOT}/{id}").json()["leaf"] == "b"


def test_an_export_can_be_imported(keeping: servers.Running, id: str) -> None:
    exported = keeping.client.get(f"{ROOT}/export", params={"id": id})
    assert "attachment" in exported.headers["content-disposition"]
    assert keeping.post(f"{ROOT}/import", exported.json()).json() == {"imported": 1}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "", {"title": 1}, 400),
        ("POST", "", {"title": "x" * 501}, 400),
        ("POST", "", {"title": "\ud800"}, 400),
        ("POST", "", {"id": "a/b"}, 400),
        ("GET", "/none", None, 404),
        ("GET", "/export?id=none", None, 404),
        ("PATCH", "/none", {"title": "x"}, 404),
        ("PATCH", "/ID", {"leaf": "none"}, 400),
        ("PATCH", "/ID", {"is_pinned": "yes"}, 400),
        ("DELETE", "/none", None, 404),
        ("POST", "/none/messages", {"role": "user", "content": "x"}, 404),
        ("POST", "/ID/messages", {"role": "user"}, 400),
        ("POST", "/ID/messages", {"role": "user", "content": "x", "parent": "none"}, 400),
        ("PATCH", "/ID/messages/none", {"content": "x"}, 404),
        ("POST", "/import", {"format": "x"}, 400),
        ("POST", "/import", {"conversations": {}}, 400),
        ("GET", "?search=" + "x" * 1001, None, 400),
    ],
)
def test_what_cannot_be_is_a_4xx_with_a_message(
    keeping: servers.Running, id: str, method: str, path: str, body: Any, status: int
) -> None:
    # Python's own JSON writes half a surrogate pair as an escape; a client could, too.
    content = None if body is None else json.dumps(body)
    answer = keeping.client.request(method, ROOT + path.replace("ID", id), content=content)
    assert answer.status_code == status
    assert servers.error_of(answer)["message"]


def test_a_server_that_keeps_none_says_so(server: servers.Running) -> None:
    answer = server.client.get(ROOT)
    assert answer.status_code == 501
    assert "--conversations" in servers.error_of(answer)["message"]


def test_conversations_need_the_key_too(model: Path) -> None:
    kept = Conversations("sqlite://")
    access = Access(keys=["a long secret"])
    with servers.running(
        lambda: servers.load_engine(model), access=access, conversations=kept
    ) as it:
        assert it.client.get(ROOT).status_code == 401
        headers = {"authorization": "Bearer a long secret"}
        assert it.client.get(ROOT, headers=headers).status_code == 200
