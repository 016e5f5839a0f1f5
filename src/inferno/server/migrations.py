"""How the database of conversations came to be what it is: one step a version.

A step that was released is never changed. A newer server brings an older database up to date when
it opens it; an older server refuses a newer database, which it would not understand.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from inferno.errors import InvalidOption

_version = sa.Table(
    "schema_version", sa.MetaData(), sa.Column("version", sa.Integer, nullable=False)
)


def _first(connection: sa.Connection) -> None:
    """Make conversations, and messages that form a tree by their parents."""
    metadata = sa.MetaData()
    sa.Table(
        "conversations",
        metadata,
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("is_pinned", sa.Boolean, nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("leaf", sa.String(64)),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("changed_at", sa.String(32), nullable=False, index=True),
    )
    sa.Table(
        "messages",
        metadata,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column(
            "conversation",
            sa.String(64),
            sa.ForeignKey("conversations.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("parent", sa.String(64)),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("finish_reason", sa.String(64)),
        sa.Column("figures", sa.Text),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.UniqueConstraint("conversation", "id"),
    )
    metadata.create_all(connection)


STEPS: tuple[Callable[[sa.Connection], None], ...] = (_first,)


def migrate(engine: sa.Engine) -> None:
    """Bring the database up to date, in one transaction.

    Raises:
        InvalidOption: it was written by a newer version.
    """
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            # Of two servers that start at once, one migrates and the other waits.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        _version.create(connection, checkfirst=True)
        found = connection.execute(sa.select(_version.c.version)).scalar()
        if found is not None and found > len(STEPS):
            raise InvalidOption(
                f"`--conversations`: expected a database of version {len(STEPS)} or older, "
                f"found {found}",
                hint="it was written by a newer inferno; update this one, or name another file",
            )
        for step in STEPS[found or 0 :]:
            step(connection)
        if found is None:
            connection.execute(_version.insert().values(version=len(STEPS)))
        else:
            connection.execute(_version.update().values(version=len(STEPS)))
