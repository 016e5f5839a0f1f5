"""Conversations in a database."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.errors import InvalidOption
from inferno.server import migrations
from inferno.server.conversations import Conversations, Message, NotThere, Refused


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/folder/conversations.db"


@pytest.fixture
def kept() -> Conversations:
    return Conversations("sqlite://")


def user(id: str, parent: str | None = None, content: str = "Hello") -> Message:
    return Message(id, parent, "user", content)


def reply(id: str, parent: str, content: str = "Hi", **more: Any) -> Message:
    return Message(id, parent, "assistant", content, **more)


def test_what_is_kept_comes_back_in_the_order_it_was_said(kept: Conversations) -> None:
    made = kept.create("c", "Greetings", "Be brief.")
    assert (made["title"], made["system"], made["leaf"], made["messages"]) == (
        "Greetings",
        "Be brief.",
        None,
        [],
    )
    kept.keep("c", user("a", content="Grüße 😀"))
    kept.keep("c", reply("b", "a", figures={"tokens": 3}, finish_reason="stop"))
    kept.keep("c", reply("c", "a"))
    found = kept.get("c")
    assert [(m["id"], m["parent"], m["role"]) for m in found["messages"]] == [
        ("a", None, "user"),
        ("b", "a", "assistant"),
        ("c", "a", "assistant"),
    ]
    assert found["messages"][0]["content"] == "Grüße 😀"
    assert found["messages"][1]["figures"] == {"tokens": 3}
    assert found["messages"][1]["finish_reason"] == "stop"
    assert found["leaf"] == "c"


def test_repeating_a_request_changes_nothing(kept: Conversations) -> None:
    for _ in range(2):
        kept.create("c", "Title")
        kept.keep("c", user("a"))
    assert len(kept.summaries()[0]) == 1
    assert len(kept.get("c")["messages"]) == 1


def test_a_message_can_grow_but_not_become_another(kept: Conversations) -> None:
    kept.create("c")
    kept.keep("c", user("a"))
    kept.keep("c", reply("b", "a", "Once", status="writing"))
    assert kept.change_message("c", "b", {"content": "Once upon"})["status"] == "writing"
    kept.keep("c", reply("b", "a", "Once upon a time", finish_reason="stop"))
    assert kept.get("c")["messages"][1]["content"] == "Once upon a time"
    with pytest.raises(Refused, match="another message"):
        kept.keep("c", reply("a", "b"))


def test_a_reply_that_a_crash_cut_off_is_kept_and_marked(url: str) -> None:
    crashed = Conversations(url)
    crashed.create("c")
    crashed.keep("c", user("a"))
    crashed.keep("c", reply("b", "a", "Once", status="writing"))
    # Nothing is closed: the process is gone.
    message = Conversations(url).get("c")["messages"][1]
    assert (message["content"], message["status"]) == ("Once", "interrupted")


def test_pinned_conversations_come_first_and_then_those_that_changed_last(
    kept: Conversations,
) -> None:
    for id in "abc":
        kept.create(id, id)
    kept.change("a", is_pinned=True)
    kept.keep("b", user("m"))
    assert [c["id"] for c in kept.summaries()[0]] == ["a", "b", "c"]


def test_a_list_says_when_there_is_more(kept: Conversations) -> None:
    for id in "abc":
        kept.create(id)
    assert kept.summaries(limit=2)[1]
    assert not kept.summaries(limit=3)[1]


@pytest.mark.parametrize(
    ("search", "found"),
    [("größe", {"a"}), ("GRÖSSE", set()), ("Größe", {"a"}), ("50%", {"b"}), ("5_%", set())],
)
def test_search_finds_titles_and_messages_letter_by_letter(
    kept: Conversations, search: str, found: set[str]
) -> None:
    kept.create("a", "Die GRÖẞE".replace("ẞ", "ß"))
    kept.create("b")
    kept.keep("b", user("m", content="Is 50% much?"))
    assert {c["id"] for c in kept.summaries(search)[0]} == found


def test_looking_at_another_branch_does_not_make_a_conversation_newer(kept: Conversations) -> None:
    kept.create("c")
    kept.keep("c", user("a"))
    kept.keep("c", reply("b", "a"))
    before = kept.get("c")["changed_at"]
    assert kept.change("c", leaf="a")["leaf"] == "a"
    assert kept.get("c")["changed_at"] == before


def test_a_deleted_conversation_is_gone_with_its_messages(kept: Conversations) -> None:
    kept.create("c")
    kept.keep("c", user("a"))
    kept.delete("c")
    with pytest.raises(NotThere):
        kept.get("c")
    kept.create("c")
    assert kept.get("c")["messages"] == []
    with pytest.raises(NotThere):
        kept.delete("none")


def test_what_hangs_on_nothing_is_refused(kept: Conversations) -> None:
    with pytest.raises(NotThere):
        kept.keep("none", user("a"))
    kept.create("c")
    with pytest.raises(Refused, match="no message 'x'"):
        kept.keep("c", user("a", parent="x"))
    with pytest.raises(Refused, match="no message 'x'"):
        kept.change("c", leaf="x")
    with pytest.raises(NotThere):
        kept.change_message("c", "x", {"content": ""})


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"id": "../x"}, "id"),
        ({"id": "a" * 65}, "id"),
        ({"parent": 1}, "parent"),
        ({"role": "system"}, "role"),
        ({"role": ["user"]}, "role"),
        ({"content": None}, "content"),
        ({"content": "\ud800"}, "content"),
        ({"content": "a\0b"}, "content"),
        ({"status": "done"}, "status"),
        ({"finish_reason": "x" * 65}, "finish_reason"),
        ({"figures": []}, "figures"),
        ({"figures": {"x": "y" * 20_000}}, "figures"),
    ],
)
def test_a_message_that_cannot_be_is_refused_by_name(values: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        Message.of({"role": "user", "content": "Hello", **values})
    assert refused.value.param == param


def test_an_export_comes_back_the_same_in_another_database(kept: Conversations) -> None:
    kept.create("c", "Title", "System")
    kept.change("c", is_pinned=True)
    kept.keep("c", user("a"))
    kept.keep("c", reply("b", "a", figures={"tokens": 3}))
    kept.keep("c", reply("d", "a"))
    kept.change("c", leaf="b")
    exported = json.loads(json.dumps(kept.export()))
    other = Conversations("sqlite://")
    assert other.import_all(exported) == 1
    mine, theirs = kept.get("c"), other.get("c")
    for conversation in (mine, theirs):
        for message in conversation["messages"]:
            del message["created_at"]
    assert mine == theirs


def test_importing_twice_overwrites_nothing(kept: Conversations) -> None:
    kept.create("c", "Title")
    exported = kept.export()
    kept.change("c", title="Another")
    kept.import_all(exported)
    assert sorted(c["title"] for c in kept.summaries()[0]) == ["Another", "Title"]


def test_an_import_is_all_or_nothing_and_says_where_it_fails(kept: Conversations) -> None:
    good = {"id": "a", "messages": []}
    bad = {"id": "b", "messages": [{"id": "x", "parent": "y", "role": "user", "content": ""}]}
    wrong = {"id": "c", "messages": [{"role": "user", "content": 1}]}
    frame = {"format": "inferno.conversations", "version": 1}
    with pytest.raises(Refused, match="no message 'y'"):
        kept.import_all({**frame, "conversations": [good, bad]})
    with pytest.raises(Refused, match=r"conversations\[1\].*messages\[0\].*`content`"):
        kept.import_all({**frame, "conversations": [good, wrong]})
    assert kept.summaries()[0] == []


def test_a_reply_of_an_export_that_was_being_written_is_interrupted(kept: Conversations) -> None:
    kept.create("c")
    kept.keep("c", user("a"))
    kept.keep("c", reply("b", "a", status="writing"))
    other = Conversations("sqlite://")
    other.import_all(kept.export())
    assert other.get("c")["messages"][1]["status"] == "interrupted"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "messages", "parent", "role", "content", "leaf", "title"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_no_import_does_anything_but_succeed_or_say_why(conversation: Any) -> None:
    kept = Conversations("sqlite://")
    exported = {
        "format": "inferno.conversations",
        "version": 1,
        "conversations": [conversation],
    }
    try:
        kept.import_all(exported)
    except Refused as refused:
        assert refused.param
        assert kept.summaries()[0] == []
    finally:
        kept.close()


def test_threads_and_servers_can_write_at_once(url: str) -> None:
    servers = [Conversations(url) for _ in range(2)]
    servers[0].create("c")
    numbers = itertools.count()
    failures: list[BaseException] = []

    def write(kept: Conversations) -> None:
        try:
            for _ in range(20):
                kept.keep("c", user(f"m{next(numbers)}"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(kept,)) for kept in servers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(servers[1].get("c")["messages"]) == 80


def test_threads_that_search_one_memory_do_not_wait_for_each_other(kept: Conversations) -> None:
    kept.create("c", "Title")
    for number in range(50):
        kept.keep("c", user(f"m{number}", content="Größe " * 50))

    def read() -> None:
        for _ in range(30):
            assert kept.summaries("größe")[0]
            assert len(kept.get("c")["messages"]) == 50

    threads = [threading.Thread(target=read, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_the_schema_of_the_first_version_is_what_the_code_asks(url: str) -> None:
    kept = Conversations(url)
    columns = {
        table: {column["name"] for column in sa.inspect(kept._engine).get_columns(table)}
        for table in ("conversations", "messages")
    }
    from inferno.server import conversations

    assert columns["conversations"] == set(conversations._conversations.c.keys())
    assert columns["messages"] == set(conversations._messages.c.keys())


def test_opening_again_migrates_once(url: str) -> None:
    Conversations(url).create("c", "Title")
    assert Conversations(url).get("c")["title"] == "Title"


def test_an_older_database_is_brought_up_to_date(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Conversations(url).create("c", "Title")

    def add(connection: sa.Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE conversations ADD COLUMN colour TEXT")

    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, add))
    newer = Conversations(url)
    assert newer.get("c")["title"] == "Title"
    with newer._engine.connect() as connection:
        connection.exec_driver_sql("SELECT colour FROM conversations")


def test_a_newer_database_is_left_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "STEPS", (*migrations.STEPS, lambda connection: None))
        Conversations(url)
    with pytest.raises(InvalidOption, match="expected a database of version 1 or older, found 2"):
        Conversations(url)


@pytest.mark.parametrize("name", ["text", "folder", "nothing"])
def test_what_is_no_database_is_an_error_with_a_hint(tmp_path: Path, name: str) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    (tmp_path / "folder").mkdir()
    url = f"sqlite:///{tmp_path}/{name}" if name != "nothing" else "nothing://x"
    with pytest.raises(InvalidOption, match="cannot open") as failed:
        Conversations(url)
    assert "off" in str(failed.value)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(InvalidOption) as failed:
        Conversations("nothing://user:secret@host/db")
    assert "secret" not in str(failed.value)
