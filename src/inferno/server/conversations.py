"""Conversations, as the chat page keeps them: messages in a tree, in a database.

SQLite in a file of the user's by default; any database that SQLAlchemy speaks to, when several
servers share one. Knows no HTTP and no model.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.server.migrations import migrate

# What a person writes in a lifetime fits; what a mistake in a loop writes does not.
MAX_TITLE = 500
MAX_TEXT = 4 << 20
MAX_FIGURES = 1 << 14
MAX_MESSAGES = 100_000

ROLES = ("user", "assistant")
STATUSES = ("complete", "writing", "interrupted")

FORMAT = "inferno.conversations"
FORMAT_VERSION = 1

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_metadata = sa.MetaData()

_conversations = sa.Table(
    "conversations",
    _metadata,
    *(sa.Column(name) for name in ("id", "title")),
    sa.Column("is_pinned", sa.Boolean),
    *(sa.Column(name) for name in ("system", "leaf", "created_at", "changed_at")),
)
_SUMMARY = ("id", "title", "is_pinned", "created_at", "changed_at")

_messages = sa.Table(
    "messages",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    *(sa.Column(name) for name in ("conversation", "id", "parent", "role", "content", "status")),
    *(sa.Column(name) for name in ("finish_reason", "figures", "created_at")),
)
_MESSAGE = (
    "id", "parent", "role", "content", "status", "finish_reason", "figures", "created_at",
)  # fmt: skip


class NotThere(LookupError):
    """There is no such conversation, or message."""


class Refused(ValueError):
    """What was asked cannot be: `param` names what is wrong with it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True)
class Message:
    """One message, checked. `figures` are any JSON object of the client's, or None."""

    id: str
    parent: str | None
    role: str
    content: str
    status: str = "complete"
    finish_reason: str | None = None
    figures: Mapping[str, Any] | None = None

    @staticmethod
    def of(values: Mapping[str, Any]) -> Message:
        """Check what a client sent. Raises Refused."""
        parent = values.get("parent")
        finish_reason = values.get("finish_reason")
        return Message(
            _id("id", values.get("id") or _new_id()),
            None if parent is None else _id("parent", parent),
            _one_of("role", values.get("role"), ROLES),
            _text("content", values.get("content"), MAX_TEXT),
            _one_of("status", values.get("status") or "complete", STATUSES),
            None if finish_reason is None else _text("finish_reason", finish_reason, 64),
            _figures(values.get("figures")),
        )


class Conversations:
    """The conversations of a database. Every call is one transaction; threads may share it."""

    def __init__(self, url: str) -> None:
        """Open the database at `url`, SQLAlchemy's; make it, or bring it up to date.

        Replies that were being written when a server ended are marked as interrupted.

        Raises:
            InvalidOption: it cannot be opened, or is of a newer version.
        """
        try:
            self._engine = _open(url)
            # A database in memory has one connection. Two threads in it could wait for each other:
            # one that has the interpreter for SQLite, one in `_lower` for the interpreter.
            is_shared = isinstance(self._engine.pool, sa.pool.StaticPool)
            self._turn: AbstractContextManager[Any] = (
                threading.Lock() if is_shared else nullcontext()
            )
            migrate(self._engine)
        except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
            reason = getattr(error, "orig", None) or error
            raise InvalidOption(
                f"`--conversations`: cannot open {shown(_without_password(url))}: {reason}",
                hint="set INFERNO_HOME to a folder that can be written, or name a file, "
                "a database's URL, or `off`",
            ) from None
        with self._begin() as connection:
            connection.execute(
                _messages.update()
                .where(_messages.c.status == "writing")
                .values(status="interrupted")
            )

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        """A transaction."""
        with self._turn, self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        """A connection to read by."""
        with self._turn, self._engine.connect() as connection:
            yield connection

    # ---- conversations ---------------------------------------------------------------------------

    def summaries(self, search: str = "", limit: int = 1000) -> tuple[list[dict[str, Any]], bool]:
        """Return the conversations whose title or messages contain `search`, and whether there are
        more than `limit`. Pinned ones come first, then those that changed last."""
        c = _conversations.c
        query = sa.select(*(c[name] for name in _SUMMARY))
        if search:
            words = search.lower()
            said = sa.select(_messages.c.conversation).where(
                sa.func.lower(_messages.c.content).contains(words, autoescape=True)
            )
            query = query.where(
                sa.func.lower(c.title).contains(words, autoescape=True) | c.id.in_(said)
            )
        query = query.order_by(c.is_pinned.desc(), c.changed_at.desc(), c.id).limit(limit + 1)
        with self._connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        return rows[:limit], len(rows) > limit

    def create(self, id: str | None = None, title: str = "", system: str = "") -> dict[str, Any]:
        """Make a conversation and return it; one that is there gets the title and system prompt."""
        id = _id("id", id or _new_id())
        values = {
            "title": _text("title", title, MAX_TITLE),
            "system": _text("system", system, MAX_TEXT),
        }
        now = _now()
        with self._begin() as connection:
            if _row(connection, id) is None:
                connection.execute(
                    _conversations.insert().values(
                        id=id, is_pinned=False, leaf=None, created_at=now, changed_at=now, **values
                    )
                )
            else:
                _update(connection, id, changed_at=now, **values)
            return _whole(connection, id)

    def get(self, id: str) -> dict[str, Any]:
        """Return a conversation with its messages. Raises NotThere."""
        with self._connect() as connection:
            return _whole(connection, id)

    def change(
        self,
        id: str,
        *,
        title: str | None = None,
        is_pinned: bool | None = None,
        system: str | None = None,
        leaf: str | None = None,
    ) -> dict[str, Any]:
        """Change what is given and return all but the messages. Raises NotThere, Refused."""
        values: dict[str, Any] = {}
        if title is not None:
            values["title"] = _text("title", title, MAX_TITLE)
        if system is not None:
            values["system"] = _text("system", system, MAX_TEXT)
        if is_pinned is not None:
            values["is_pinned"] = is_pinned
        if values:
            values["changed_at"] = _now()
        with self._begin() as connection:
            if leaf is not None:
                if _message(connection, id, leaf) is None:
                    raise Refused("leaf", f"`leaf`: there is no message {shown(leaf)}")
                values["leaf"] = leaf  # looking at another branch changes nothing of what was said
            if values:
                _update(connection, id, **values)
            return _found(connection, id)

    def delete(self, id: str) -> None:
        """Delete a conversation and its messages. Raises NotThere."""
        with self._begin() as connection:
            connection.execute(_messages.delete().where(_messages.c.conversation == id))
            if not connection.execute(
                _conversations.delete().where(_conversations.c.id == id)
            ).rowcount:
                raise NotThere(f"conversation {shown(id)}")

    # ---- messages --------------------------------------------------------------------------------

    def keep(self, id: str, message: Message) -> dict[str, Any]:
        """Add a message, or what became of one that is there; its branch is shown from now on.

        Raises:
            NotThere: no such conversation.
            Refused: no such parent; another message has the id.
        """
        with self._begin() as connection:
            _found(connection, id)
            before = _message(connection, id, message.id)
            if before is None:
                _insert(connection, id, [message])
            elif (before["parent"], before["role"]) != (message.parent, message.role):
                raise Refused("id", f"`id`: {shown(message.id)} is another message")
            else:
                _update_message(
                    connection,
                    id,
                    message.id,
                    content=message.content,
                    status=message.status,
                    finish_reason=message.finish_reason,
                    figures=_json(message.figures),
                )
            _update(connection, id, leaf=message.id, changed_at=_now())
            return _message_of(_message(connection, id, message.id))

    def change_message(self, id: str, message: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Change what is given of content, status, finish_reason and figures.

        Raises NotThere, Refused.
        """
        changed: dict[str, Any] = {}
        if values.get("content") is not None:
            changed["content"] = _text("content", values["content"], MAX_TEXT)
        if values.get("status") is not None:
            changed["status"] = _one_of("status", values["status"], STATUSES)
        if values.get("finish_reason") is not None:
            changed["finish_reason"] = _text("finish_reason", values["finish_reason"], 64)
        if values.get("figures") is not None:
            changed["figures"] = _json(_figures(values["figures"]))
        with self._begin() as connection:
            if _message(connection, id, message) is None:
                raise NotThere(f"message {shown(message)}")
            if changed:
                _update_message(connection, id, message, **changed)
                _update(connection, id, changed_at=_now())
            return _message_of(_message(connection, id, message))

    def write(
        self, id: str, message: str, content: str, status: str, finish_reason: str | None
    ) -> None:
        """Save how far a reply has come; one that is not there, or that somebody has ended
        meanwhile, stays as it is."""
        m = _messages.c
        with self._begin() as connection:
            written = connection.execute(
                _messages.update()
                .where(m.conversation == id, m.id == message, m.status == "writing")
                .values(content=content, status=status, finish_reason=finish_reason)
            )
            if written.rowcount:
                _update(connection, id, changed_at=_now())

    # ---- files -----------------------------------------------------------------------------------

    def export(self, ids: Sequence[str] | None = None) -> dict[str, Any]:
        """Return conversations, all by default, as one object. Raises NotThere."""
        with self._connect() as connection:
            if ids is None:
                query = sa.select(_conversations.c.id).order_by(_conversations.c.created_at)
                ids = [str(id) for id in connection.execute(query).scalars()]
            found = [_whole(connection, id) for id in ids]
        return {"format": FORMAT, "version": FORMAT_VERSION, "conversations": found}

    def import_all(self, exported: Any) -> int:
        """Add the conversations of an export, all or none; return how many.

        One whose id is taken gets a new one, so that nothing here is overwritten.

        Raises:
            Refused: it is no such export, or something in it cannot be.
        """
        checked = [_imported(n, c) for n, c in enumerate(_conversations_of(exported))]
        with self._begin() as connection:
            for values, messages in checked:
                if _row(connection, values["id"]) is not None:
                    values["id"] = _new_id()
                connection.execute(_conversations.insert().values(**values))
                _insert(connection, values["id"], messages)
        return len(checked)


# ---- in a transaction ----------------------------------------------------------------------------


def _row(connection: sa.Connection, id: str) -> dict[str, Any] | None:
    query = sa.select(_conversations).where(_conversations.c.id == id)
    row = connection.execute(query).mappings().first()
    return None if row is None else dict(row)


def _found(connection: sa.Connection, id: str) -> dict[str, Any]:
    row = _row(connection, id)
    if row is None:
        raise NotThere(f"conversation {shown(id)}")
    return row


def _whole(connection: sa.Connection, id: str) -> dict[str, Any]:
    query = sa.select(_messages).where(_messages.c.conversation == id).order_by(_messages.c.number)
    messages = [_message_of(dict(row)) for row in connection.execute(query).mappings()]
    return {**_found(connection, id), "messages": messages}


def _message(connection: sa.Connection, id: str, message: str) -> dict[str, Any] | None:
    m = _messages.c
    query = sa.select(_messages).where(m.conversation == id, m.id == message)
    row = connection.execute(query).mappings().first()
    return None if row is None else dict(row)


def _message_of(row: Mapping[str, Any] | None) -> dict[str, Any]:
    assert row is not None
    figures = row["figures"]
    found = {name: row[name] for name in _MESSAGE}
    return {**found, "figures": None if figures is None else json.loads(figures)}


def _insert(connection: sa.Connection, id: str, messages: Sequence[Message]) -> None:
    m = _messages.c
    known = set(connection.execute(sa.select(m.id).where(m.conversation == id)).scalars())
    if len(known) + len(messages) > MAX_MESSAGES:
        raise Refused("messages", f"A conversation: expected at most {MAX_MESSAGES:,} messages")
    rows = []
    for message in messages:
        if message.parent is not None and message.parent not in known:
            raise Refused("parent", f"`parent`: there is no message {shown(message.parent)}")
        if message.id in known:
            raise Refused("id", f"`id`: {shown(message.id)} is there twice")
        known.add(message.id)
        rows.append(
            {
                "conversation": id,
                "id": message.id,
                "parent": message.parent,
                "role": message.role,
                "content": message.content,
                "status": message.status,
                "finish_reason": message.finish_reason,
                "figures": _json(message.figures),
                "created_at": _now(),
            }
        )
    if rows:
        connection.execute(_messages.insert(), rows)


def _update(connection: sa.Connection, id: str, **values: Any) -> None:
    changed = connection.execute(
        _conversations.update().where(_conversations.c.id == id).values(**values)
    )
    if not changed.rowcount:
        raise NotThere(f"conversation {shown(id)}")


def _update_message(connection: sa.Connection, id: str, message: str, **values: Any) -> None:
    m = _messages.c
    connection.execute(
        _messages.update().where(m.conversation == id, m.id == message).values(**values)
    )


# ---- what comes from outside ---------------------------------------------------------------------


def _conversations_of(exported: Any) -> list[Any]:
    if not isinstance(exported, Mapping) or exported.get("format") != FORMAT:
        raise Refused("format", f'`format`: expected "{FORMAT}", as an export has it')
    if exported.get("version") != FORMAT_VERSION:
        raise Refused(
            "version",
            f"`version`: expected {FORMAT_VERSION}, found {shown(exported.get('version'))}",
        )
    conversations = exported.get("conversations")
    if not isinstance(conversations, list):
        raise Refused("conversations", "`conversations`: expected a list")
    return conversations


def _imported(number: int, values: Any) -> tuple[dict[str, Any], list[Message]]:
    """Check a conversation of an export. Nobody goes on with a reply that was being written."""
    with _within(f"conversations[{number}]"):
        if not isinstance(values, Mapping) or not isinstance(values.get("messages"), list):
            raise Refused("messages", "`messages`: expected a conversation with a list of them")
        messages = []
        for place, message in enumerate(values["messages"]):
            with _within(f"messages[{place}]"):
                if not isinstance(message, Mapping):
                    raise Refused("message", f"expected a message, found {shown(message)}")
                status = message.get("status")
                status = "interrupted" if status == "writing" else status
                messages.append(Message.of({**message, "status": status}))
        leaf = values.get("leaf")
        if leaf is not None and _id("leaf", leaf) not in {message.id for message in messages}:
            raise Refused("leaf", f"`leaf`: there is no message {shown(leaf)}")
        now = _now()
        return {
            "id": _id("id", values.get("id") or _new_id()),
            "title": _text("title", values.get("title", ""), MAX_TITLE),
            "system": _text("system", values.get("system", ""), MAX_TEXT),
            "is_pinned": values.get("is_pinned") is True,
            "leaf": leaf,
            "created_at": _time(values.get("created_at"), now),
            "changed_at": _time(values.get("changed_at"), now),
        }, messages


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Say of what cannot be where it stands."""
    try:
        yield
    except Refused as refused:
        raise Refused(place, f"`{place}`: {refused}") from None


def _id(param: str, value: Any) -> str:
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise Refused(
            param,
            f"`{param}`: expected 1 to 64 letters, digits, _ or -, found {shown(value)}",
        )
    return value


def _text(param: str, value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise Refused(param, f"`{param}`: expected a string, found {shown(value)}")
    if len(value) > most:
        raise Refused(
            param, f"`{param}`: expected at most {most:,} characters, found {len(value):,}"
        )
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise Refused(
            param, f"`{param}`: expected text, found U+0000 or half of a surrogate pair in it"
        )
    return value


def _one_of(param: str, value: Any, choices: Sequence[str]) -> str:
    if value not in choices:
        raise Refused(param, f"`{param}`: expected {' or '.join(choices)}, found {shown(value)}")
    return str(value)


def _figures(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise Refused("figures", f"`figures`: expected an object, found {shown(value)}")
    text = _json(value)
    if text is not None and len(text) > MAX_FIGURES:
        raise Refused("figures", f"`figures`: expected at most {MAX_FIGURES:,} bytes of JSON")
    return value


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


def _time(value: Any, otherwise: str) -> str:
    """Return a time of an export, if it is one."""
    try:
        return _at(datetime.fromisoformat(value))
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _at(moment: datetime) -> str:
    """Return a time as text that sorts as times do."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def _now() -> str:
    return _at(datetime.now(timezone.utc))


def _new_id() -> str:
    return str(uuid.uuid4())


# ---- the database --------------------------------------------------------------------------------


def _open(url: str) -> sa.Engine:
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return sa.create_engine(parsed, pool_pre_ping=True)
    if parsed.database not in (None, "", ":memory:"):
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(parsed)
    else:
        # One connection, or each would have a database of its own.
        engine = sa.create_engine(
            parsed,
            poolclass=sa.pool.StaticPool,
            connect_args={"check_same_thread": False},
        )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        # Readers and a writer at once; what was committed survives a crash of this process.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000"):
            connection.execute(f"PRAGMA {pragma}")
        # SQLite's own knows ASCII only.
        connection.create_function("lower", 1, _lower, deterministic=True)

    return engine


def _lower(text: Any) -> Any:
    return text.lower() if isinstance(text, str) else text


def _without_password(url: str) -> str:
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return url
