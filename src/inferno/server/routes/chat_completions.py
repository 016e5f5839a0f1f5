"""`POST /v1/chat/completions`: messages to a reply, whole or as it comes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.server.asked import (
    Delivery,
    check_model,
    delivery_of,
    envelope,
    generations_of,
    headers_of,
    new_id,
)
from inferno.server.body import read_fields
from inferno.server.event_stream import DONE, PING, EventStream, event, to_json
from inferno.server.fields import Fields
from inferno.server.figures import report, timings, usage
from inferno.server.prompts import chat_prompt_of
from inferno.server.replies import News, Reply
from inferno.server.response_format import response_format_of
from inferno.server.sampling import chat_logprobs_of, choices_of, sampling_of
from inferno.server.service import Service, in_thread, service_of, session_id_of
from inferno.server.tokens import LogprobStream

router = APIRouter()


@router.post("/chat/completions", summary="Answer a chat")
async def chat_completions(request: Request) -> Response:
    """OpenAI's chat completions. Extensions: llama.cpp's sampling fields, `truncation`."""
    service = service_of(request)
    session_id = session_id_of(request)
    fields = await read_fields(request)
    check_model(fields, service)
    delivery = delivery_of(fields)
    wants_logprobs, top = chat_logprobs_of(fields)
    prompt = chat_prompt_of(fields, service.engine)
    response_format_of(fields)
    choices = choices_of(fields)
    params = sampling_of(fields, service.engine, logprobs=max(1, top) if wants_logprobs else 0)
    fields.finish(strict=service.settings.strict)

    ids, dropped = await in_thread(partial(prompt.ids, service.engine))
    generations = await in_thread(partial(generations_of, service, [ids], params, choices))
    service.supersede_draft(session_id)
    reply = service.start(generations, delivery.priority)
    logprobs = (
        [LogprobStream(service.engine, g, ids[-1], top) for g in generations]
        if wants_logprobs
        else []
    )
    headers = headers_of(request, fields)
    if delivery.streams:
        chunks = _chunks(service, reply, delivery, logprobs, fields, len(ids), dropped)
        return EventStream(chunks, reply.cancel, headers=headers)
    await reply.finish(request.receive)
    body = {
        **envelope("chat.completion", new_id("chatcmpl"), service),
        "choices": [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": generation.text,
                    "refusal": None,
                },
                "logprobs": _logprobs(logprobs[index].due(generation.text, is_over=True))
                if wants_logprobs
                else None,
                "finish_reason": generation.finish_reason,
            }
            for index, generation in enumerate(generations)
        ],
        "usage": usage(generations),
        "timings": timings(generations[0]),
        "inferno": report(reply, fields.ignored, dropped),
    }
    return Response(to_json(body), media_type="application/json", headers=headers)


async def _chunks(
    service: Service,
    reply: Reply,
    delivery: Delivery,
    logprobs: list[LogprobStream],
    fields: Fields,
    prompt_tokens: int,
    dropped: int,
) -> AsyncIterator[bytes]:
    head = envelope("chat.completion.chunk", new_id("chatcmpl"), service)
    if delivery.includes_usage:
        head["usage"] = None

    def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
        return event({**head, "choices": choices, **more})

    def choice(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> Any:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    for index in range(len(reply.generations)):
        yield chunk([choice(index, {"role": "assistant", "content": None})])
    left = len(reply.generations)
    async for news in reply.news(service.settings.ping_seconds):
        if news is None:
            yield PING
            continue
        update, generation = news.update, reply.generations[news.index]
        if delivery.reports_progress and update.processed_tokens:
            yield chunk([], prompt_progress=_progress(reply, news, prompt_tokens))
        entries = logprobs[news.index].due(update.text, is_over=update.is_over) if logprobs else []
        if update.text or entries:
            part = choice(news.index, {"content": update.text} if update.text else {})
            if logprobs:
                part["logprobs"] = _logprobs(entries)
            more = {"timings": timings(generation)} if delivery.reports_timings else {}
            yield chunk([part], **more)
        if update.is_over:
            left -= 1
            more = {"timings": timings(generation)}
            if not left:
                more["inferno"] = report(reply, fields.ignored, dropped)
            yield chunk([choice(news.index, {}, generation.finish_reason)], **more)
    if delivery.includes_usage:
        yield chunk([], usage=usage(reply.generations))
    yield DONE


def _logprobs(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": entries, "refusal": None}


def _progress(reply: Reply, news: News, prompt_tokens: int) -> dict[str, Any]:
    """Return llama.cpp's progress of a prompt."""
    pending = reply.streams[news.index].pending
    return {
        "total": prompt_tokens,
        "cache": pending.cached if pending is not None else 0,
        "processed": news.update.processed_tokens,
        "time_ms": round(1e3 * (time.perf_counter() - reply.began)),
    }
