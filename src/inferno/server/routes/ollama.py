"""Ollama's interface: `/api/chat` and `/api/generate`, line by line, and the lists around them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.options import SamplingParams
from inferno.scheduler import Priority
from inferno.server import openapi
from inferno.server.asked import check_model, generations_of, headers_of
from inferno.server.body import read_fields
from inferno.server.chats import Chat, begin_chat
from inferno.server.embedding import dimensions_of, embed, ids_of, inputs_of
from inferno.server.event_stream import EventStream, to_json
from inferno.server.failures import invalid
from inferno.server.fields import Fields
from inferno.server.messages import MAX_MESSAGES
from inferno.server.ollama import (
    INTERFACE_VERSION,
    capabilities,
    chat_fields,
    described,
    details,
    durations,
    format_fields,
    model_info,
    parameters,
    refuse_images,
    rfc3339,
    sampling_fields,
    stamped,
    tag,
    tool_calls,
)
from inferno.server.prompts import completion_ids
from inferno.server.response_format import form_of_request
from inferno.server.sampling import chat_logprobs_of, effective, sampling_of
from inferno.server.service import Service, in_thread, service_of
from inferno.server.tokens import LogprobStream
from inferno.server.turns import Turn

router = APIRouter(prefix="/api", tags=["Ollama"])

LINES = "application/x-ndjson"
# A model that is never unloaded expires when Go's clock ends.
FOREVER = 9_223_372_036

Shape = Callable[[str, str, list[dict[str, Any]]], dict[str, Any]]


@router.head("/version", include_in_schema=False)
@router.get("/version", summary="The version of Ollama's interface")
async def version() -> dict[str, str]:
    return {"version": INTERFACE_VERSION}


@router.head("/tags", include_in_schema=False)
@router.get("/tags", summary="List the models")
async def tags(request: Request) -> dict[str, Any]:
    service = service_of(request)
    return {"models": [await in_thread(partial(described, service))]}


@router.get("/ps", summary="List the loaded models")
async def ps(request: Request) -> dict[str, Any]:
    service = service_of(request)
    model = await in_thread(partial(described, service))
    more = {
        "expires_at": rfc3339(service.created + FOREVER),
        "size_vram": 0,
        "context_length": service.engine.context,
    }
    return {"models": [{**model, **more}]}


@router.post("/show", summary="Describe a model", openapi_extra=openapi.OLLAMA_SHOW)
async def show(request: Request) -> Response:
    service = service_of(request)
    fields = await read_fields(request)
    if not fields.has("model") and fields.has("name"):
        fields = Fields({"model": fields.take("name")})
    check_model(fields, service)
    fields.flag("verbose")
    fields.finish(strict=service.settings.strict)
    defaults = effective(SamplingParams().merged(**service.engine.config.generation))
    body = {
        "modelfile": f"FROM {service.model}\n",
        "parameters": parameters(defaults),
        "template": service.engine.template.template,
        "details": details(service),
        "model_info": model_info(service),
        "capabilities": await in_thread(partial(capabilities, service)),
        "modified_at": rfc3339(service.created),
    }
    return _whole(request, fields, body)


@router.post("/chat", summary="Answer a chat", openapi_extra=openapi.OLLAMA_CHAT)
async def chat(request: Request) -> Response:
    """Messages to a reply; without messages, only whether the model is there."""
    service = service_of(request)
    fields = await read_fields(request)
    check_model(fields, service)
    streams = fields.flag("stream", True)
    messages = fields.items("messages", MAX_MESSAGES)
    _read_limits(fields)

    def shape(content: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = calls
        return {"message": message}

    if not messages:
        return _loaded(request, service, fields, shape, streams)
    asked = await in_thread(partial(chat_fields, fields, service, messages))
    fields.finish(strict=False)
    begun = await begin_chat(request, service, asked, Priority.INTERACTIVE)
    return await _answered(request, begun, shape, streams)


@router.post(
    "/generate",
    summary="Answer or continue a text",
    openapi_extra=openapi.OLLAMA_GENERATE,
)
async def generate(request: Request) -> Response:
    """A prompt to a reply, by the template unless it is `raw` or has a `suffix`."""
    service = service_of(request)
    fields = await read_fields(request)
    check_model(fields, service)
    streams = fields.flag("stream", True)
    prompt, suffix, system = fields.text("prompt"), fields.text("suffix"), fields.text("system")
    is_raw = fields.flag("raw")
    refuse_images(fields.take("images"), "")
    fields.refuse("template", "the model's own template is the one that counts", "")
    fields.refuse("context", "send the messages so far to /api/chat", [])
    _read_limits(fields)

    def shape(content: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
        return {"response": content, **({"thinking": thinking} if thinking else {})}

    if not prompt and not suffix:
        return _loaded(request, service, fields, shape, streams)
    if is_raw or suffix:
        begun = await _begin_completion(service, fields, prompt or "", suffix or None)
    else:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt or ""})
        asked = await in_thread(partial(chat_fields, fields, service, messages))
        fields.finish(strict=False)
        begun = await begin_chat(request, service, asked, Priority.INTERACTIVE)
    return await _answered(request, begun, shape, streams)


@router.post("/embed", summary="Texts to vectors", openapi_extra=openapi.OLLAMA_EMBED)
async def embed_(request: Request) -> Response:
    """`input` is a text or a list of texts. What does not fit is truncated only if asked."""
    service = service_of(request)
    began = time.perf_counter()
    fields = await read_fields(request)
    check_model(fields, service)
    inputs = inputs_of(fields.take("input"), "input")
    truncates = fields.flag("truncate")
    dimensions = dimensions_of(fields, service.engine)
    fields.ignore("keep_alive", "options")
    fields.finish(strict=service.settings.strict)
    ids = await in_thread(partial(ids_of, service.engine, inputs, "input", truncates=truncates))
    vectors = await embed(service, ids, request.receive, dimensions=dimensions)
    body = {
        "model": tag(service),
        "embeddings": [vector.tolist() for vector in vectors],
        "total_duration": round(1e9 * (time.perf_counter() - began)),
        "load_duration": 0,
        "prompt_eval_count": sum(map(len, ids)),
    }
    return _whole(request, fields, body)


@router.post(
    "/embeddings",
    summary="A text to a vector",
    deprecated=True,
    openapi_extra=openapi.OLLAMA_EMBEDDINGS,
)
async def embeddings(request: Request) -> Response:
    service = service_of(request)
    fields = await read_fields(request)
    check_model(fields, service)
    prompt = fields.text("prompt")
    if not prompt:
        raise invalid("prompt", "`prompt`: expected some text, found none")
    fields.ignore("keep_alive", "options")
    fields.finish(strict=service.settings.strict)
    ids = await in_thread(partial(ids_of, service.engine, [prompt], "prompt"))
    width = service.engine.config.hidden_size
    vectors = await embed(service, ids, request.receive, dimensions=width)
    return _whole(request, fields, {"embedding": vectors[0].tolist()})


def _read_limits(fields: Fields) -> None:
    """Read what to do with too long a prompt: here it is an error, as of `truncate: false`."""
    for name in ("truncate", "shift"):
        if fields.flag(name):
            fields.note(name)


async def _begin_completion(
    service: Service, fields: Fields, prompt: str, suffix: str | None
) -> Chat:
    wants_logprobs, top = chat_logprobs_of(fields)
    asked = Fields(
        {"prompt": prompt, "suffix": suffix, **sampling_fields(fields), **format_fields(fields)},
        ignored=fields.ignored,
    )
    fields.ignore("think")
    form = await form_of_request(asked)
    params = sampling_of(asked, service.engine, logprobs=max(1, top) if wants_logprobs else 0)
    params = params if form is None else params.merged(**form.options)
    prompts = await in_thread(partial(completion_ids, asked, service.engine))
    fields.finish(strict=service.settings.strict)
    generations = await in_thread(partial(generations_of, service, prompts, params, 1))
    streams = (
        [LogprobStream(service.engine, generations[0], prompts[0][-1], top)]
        if wants_logprobs
        else []
    )
    reply = service.start(generations)
    return Chat(service, fields, reply, [Turn()], streams, len(prompts[0]), 0)


def _loaded(
    request: Request, service: Service, fields: Fields, shape: Shape, streams: bool
) -> Response:
    """Answer a request of nothing, by which clients load a model: it is there."""
    for name in ("options", "format", "think", "tools", "logprobs", "top_logprobs", "keep_alive"):
        fields.take(name)
    fields.finish(strict=service.settings.strict)
    body = {**stamped(service), **shape("", "", []), "done": True, "done_reason": "load"}
    if not streams:
        return _whole(request, fields, body)
    return Response(_line(body), media_type=LINES, headers=headers_of(request, fields))


async def _answered(request: Request, chat: Chat, shape: Shape, streams: bool) -> Response:
    headers = headers_of(request, chat.fields)
    if streams:
        return EventStream(
            _lines(chat, shape),
            chat.cancel,
            headers=headers,
            media_type=LINES,
            failed=lambda failure: _line(failure.body_at(request.url.path)),
        )
    await chat.finish(request)
    turn = chat.turns[0]
    body = {
        **stamped(chat.service),
        **shape(turn.content, turn.reasoning, tool_calls(turn)),
        **_end(chat),
    }
    if chat.logprobs:
        body["logprobs"] = chat.all_logprobs(0)
    return Response(to_json(body), media_type="application/json", headers=headers)


async def _lines(chat: Chat, shape: Shape) -> AsyncIterator[bytes]:
    async for news in chat.news():
        if news is None:
            continue  # there is no line that says nothing
        content = "".join(part.content for part in news.parts)
        thinking = "".join(part.reasoning for part in news.parts)
        logprobs = {"logprobs": news.logprobs} if news.logprobs else {}
        said = []
        if content or thinking or logprobs:
            said.append({**shape(content, thinking, []), "done": False, **logprobs})
        if news.update.is_over:
            # A call comes as a whole, as its arguments are an object.
            if calls := tool_calls(news.turn):
                said.append({**shape("", "", calls), "done": False})
            said.append({**shape("", "", []), **_end(chat)})
        if said:
            yield b"".join(_line({**stamped(chat.service), **line}) for line in said)


def _end(chat: Chat) -> dict[str, Any]:
    generation = chat.generations[0]
    return {
        "done": True,
        "done_reason": generation.finish_reason,
        **durations(generation, time.perf_counter() - chat.reply.began),
        "inferno": chat.report(),
    }


def _whole(request: Request, fields: Fields, body: dict[str, Any]) -> Response:
    return Response(
        to_json(body), media_type="application/json", headers=headers_of(request, fields)
    )


def _line(value: Any) -> bytes:
    return to_json(value) + b"\n"
