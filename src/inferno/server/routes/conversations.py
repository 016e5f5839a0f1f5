"""`/app/conversations`: what the chat page keeps. Nothing of the model is asked here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.server import openapi
from inferno.server.body import MAX_DISCARDED_BYTES, read_fields
from inferno.server.conversations import Conversations, Message, NotThere, Refused
from inferno.server.event_stream import to_json
from inferno.server.failures import RequestFailed, invalid

T = TypeVar("T")

# As many as a list that people scroll in may have.
MAX_LISTED = 1000

ROOT = "/app/conversations"

router = APIRouter(prefix=ROOT)


@router.get("", summary="List conversations")
async def summaries(request: Request, search: str = "") -> Response:
    """Those that contain `search`: pinned ones first, then those that changed last."""
    kept = _conversations_of(request)
    if len(search) > 1000 or not _is_text(search):
        raise invalid("search", "`search`: expected at most 1,000 characters of text")
    data, has_more = await _in_thread(lambda: kept.summaries(search, MAX_LISTED))
    return _answer({"data": data, "has_more": has_more})


@router.post(
    "", summary="Begin a conversation", status_code=201, openapi_extra=openapi.CONVERSATION
)
async def create(request: Request) -> Response:
    """`id`, `title` and `system`, all optional. An `id` that is there gets the other two."""
    kept = _conversations_of(request)
    fields = await read_fields(request)
    id, title, system = fields.text("id"), fields.text("title"), fields.text("system")
    return _answer(await _in_thread(lambda: kept.create(id, title or "", system or "")), 201)


@router.get("/export", summary="Export conversations")
async def export(request: Request, id: str | None = None) -> Response:
    """One with `id`, or all."""
    kept = _conversations_of(request)
    found = await _in_thread(lambda: kept.export(None if id is None else [id]))
    name = 'attachment; filename="conversations.json"'
    return _answer(found, headers={"content-disposition": name})


@router.post("/import", summary="Import conversations", openapi_extra=openapi.CONVERSATIONS_IMPORT)
async def import_all(request: Request) -> Response:
    """Add those of an export, all or none; none that is there is changed."""
    kept = _conversations_of(request)
    fields = await read_fields(request, most=MAX_DISCARDED_BYTES)
    exported = {name: fields.take(name) for name in ("format", "version", "conversations")}
    return _answer({"imported": await _in_thread(lambda: kept.import_all(exported))})


@router.get("/{id}", summary="A conversation with its messages")
async def get(request: Request, id: str) -> Response:
    kept = _conversations_of(request)
    return _answer(await _in_thread(lambda: kept.get(id)))


@router.patch(
    "/{id}",
    summary="Rename, pin, or show another branch",
    openapi_extra=openapi.CONVERSATION_CHANGE,
)
async def change(request: Request, id: str) -> Response:
    """`title`, `is_pinned`, `system` and `leaf`, the end of the branch that is looked at."""
    kept = _conversations_of(request)
    fields = await read_fields(request)
    title, system, leaf = fields.text("title"), fields.text("system"), fields.text("leaf")
    is_pinned = fields.flag("is_pinned") if fields.has("is_pinned") else None
    return _answer(
        await _in_thread(
            lambda: kept.change(id, title=title, is_pinned=is_pinned, system=system, leaf=leaf)
        )
    )


@router.delete("/{id}", summary="Delete a conversation", status_code=204)
async def delete(request: Request, id: str) -> Response:
    kept = _conversations_of(request)
    await _in_thread(lambda: kept.delete(id))
    return Response(status_code=204)


@router.post(
    "/{id}/messages",
    summary="Keep a message",
    status_code=201,
    openapi_extra=openapi.CONVERSATION_MESSAGE,
)
async def keep(request: Request, id: str) -> Response:
    """`parent`, `role`, `content`, and optionally `id`, `status`, `finish_reason`, `figures`.

    The same `id` again is what became of that message, so that a request can be repeated.
    """
    kept = _conversations_of(request)
    fields = await read_fields(request)
    names = ("id", "parent", "role", "content", "status", "finish_reason", "figures")
    values = {name: fields.take(name) for name in names}
    return _answer(await _in_thread(lambda: kept.keep(id, Message.of(values))), 201)


@router.patch(
    "/{id}/messages/{message}",
    summary="Change a message",
    openapi_extra=openapi.CONVERSATION_MESSAGE_CHANGE,
)
async def change_message(request: Request, id: str, message: str) -> Response:
    kept = _conversations_of(request)
    fields = await read_fields(request)
    names = ("content", "status", "finish_reason", "figures")
    values = {name: fields.take(name) for name in names}
    return _answer(await _in_thread(lambda: kept.change_message(id, message, values)))


def _conversations_of(request: Request) -> Conversations:
    kept: Conversations | None = request.app.state.conversations
    if kept is None:
        raise RequestFailed(
            "This server keeps no conversations\nhint: start it without `--conversations off`",
            501,
            "not_supported_error",
            code="not_supported",
        )
    return kept


async def _in_thread(work: Callable[[], T]) -> T:
    """Ask the database beside the event loop."""
    try:
        return await asyncio.to_thread(work)
    except NotThere as missing:
        raise RequestFailed(
            f"There is no {missing.args[0]}", 404, "not_found_error", code="not_found"
        ) from None
    except Refused as refused:
        raise invalid(refused.param, str(refused)) from None


def _answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(body), status, headers, "application/json")


def _is_text(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" or c == "\0" for c in text)
