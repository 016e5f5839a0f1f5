"""`POST /v1/chat/completions`: messages to a reply, whole or as it comes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.server import openapi
from inferno.server.asked import Delivery, check_model, delivery_of, envelope, headers_of, new_id
from inferno.server.body import read_fields
from inferno.server.chats import Chat, ChatNews, begin_chat
from inferno.server.event_stream import DONE, PING, EventStream, event, to_json
from inferno.server.figures import timings
from inferno.server.service import service_of
from inferno.server.turns import Part, Turn

router = APIRouter()


@router.post(
    "/chat/completions",
    summary="Answer a chat",
    openapi_extra=openapi.CHAT_COMPLETIONS,
)
async def chat_completions(request: Request) -> Response:
    """OpenAI's chat completions. Extensions: llama.cpp's sampling fields, `truncation`."""
    service = service_of(request)
    fields = await read_fields(request)
    check_model(fields, service)
    delivery = delivery_of(fields)
    chat = await begin_chat(request, service, fields, delivery.priority)
    headers = headers_of(request, fields)
    if delivery.streams:
        return EventStream(_chunks(chat, delivery), chat.cancel, headers=headers)
    await chat.finish(request)
    body = {
        **envelope("chat.completion", new_id("chatcmpl"), service),
        "choices": [
            {
                "index": index,
                "message": _message(turn),
                "logprobs": _logprobs(chat.all_logprobs(index)) if chat.logprobs else None,
                "finish_reason": chat.finish_reason(index),
            }
            for index, turn in enumerate(chat.turns)
        ],
        "usage": chat.usage(),
        "timings": timings(chat.generations[0]),
        "inferno": chat.report(),
    }
    return Response(to_json(body), media_type="application/json", headers=headers)


async def _chunks(chat: Chat, delivery: Delivery) -> AsyncIterator[bytes]:
    head = envelope("chat.completion.chunk", new_id("chatcmpl"), chat.service)
    if delivery.includes_usage:
        head["usage"] = None

    def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
        return event({**head, "choices": choices, **more})

    def choice(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> Any:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    # What comes at once is sent at once: while a pass runs, each thing sent takes a core from it.
    # So the roles come with the first news.
    left = len(chat.turns)
    said = [chunk([choice(i, {"role": "assistant", "content": None})]) for i in range(left)]
    async for news in chat.news():
        if news is None:
            yield PING
            continue
        update, generation = news.update, news.generation
        if delivery.reports_progress and update.processed_tokens:
            said.append(chunk([], prompt_progress=_progress(chat, news)))
        deltas = [_delta(part, news.turn) for part in news.parts]
        if not deltas and news.logprobs:
            deltas = [{}]
        for number, delta in enumerate(deltas):
            part = choice(news.index, delta)
            if chat.logprobs:
                part["logprobs"] = _logprobs([] if number else news.logprobs)
            more = {"timings": timings(generation)} if delivery.reports_timings else {}
            said.append(chunk([part], **more))
        if update.is_over:
            left -= 1
            more = {"timings": timings(generation)}
            if not left:
                more["inferno"] = chat.report()
            said.append(chunk([choice(news.index, {}, chat.finish_reason(news.index))], **more))
        if said and left:
            yield b"".join(said)
            said = []
    if delivery.includes_usage:
        said.append(chunk([], usage=chat.usage()))
    yield b"".join([*said, DONE])


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": turn.content if turn.content or not turn.calls else None,
        "refusal": None,
    }
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in turn.calls
        ]
    return message


def _delta(part: Part, turn: Turn) -> dict[str, Any]:
    if part.reasoning:
        return {"reasoning_content": part.reasoning}
    if part.call < 0:
        return {"content": part.content}
    if not part.begins:
        return {"tool_calls": [{"index": part.call, "function": {"arguments": part.arguments}}]}
    call = turn.calls[part.call]
    function = {"name": call.name, "arguments": part.arguments}
    begun = {"index": part.call, "id": call.id, "type": "function", "function": function}
    return {"tool_calls": [begun]}


def _logprobs(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": entries, "refusal": None}


def _progress(chat: Chat, news: ChatNews) -> dict[str, Any]:
    """Return llama.cpp's progress of a prompt."""
    pending = chat.reply.streams[news.index].pending
    return {
        "total": chat.prompt_tokens,
        "cache": pending.cached if pending is not None else 0,
        "processed": news.update.processed_tokens,
        "time_ms": round(1e3 * (time.perf_counter() - chat.reply.began)),
    }
