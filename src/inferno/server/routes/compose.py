"""`POST /v1/compose`: read a draft while it is being typed, so that its answer begins at once.

Nothing of it is remembered but pages of the prefix cache, so it can only save work: the chat
request that is sent in the end is like any other, and finds there what they have in common.

With a session's name the prompt is read to its end, as if the draft were sent now, and so are the
logits there: if it is, nothing is left to compute. What of that is not the draft's, the end of the
turn, is forgotten when there is a newer draft.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from inferno.draft import settled
from inferno.prefix_cache import common_length
from inferno.scheduler import Priority
from inferno.server import openapi
from inferno.server.asked import check_model, headers_of
from inferno.server.body import read_fields
from inferno.server.failures import RequestFailed, invalid, too_long
from inferno.server.prompts import ChatPrompt, chat_prompt_of
from inferno.server.replies import Reply
from inferno.server.service import Draft, Service, in_thread, service_of, session_id_of
from inferno.server.tools import tools_of_request

router = APIRouter()


@router.post("/compose", summary="Read a draft ahead", openapi_extra=openapi.COMPOSE)
async def compose(request: Request) -> Response:
    """The body of a chat request whose last message is the user's unfinished draft.

    The newest draft of an `x-session-id` takes the place of older ones, which then answer with what
    they had read. Replies go first.
    """
    service = service_of(request)
    session_id = session_id_of(request)
    began = time.perf_counter()
    fields = await read_fields(request)
    check_model(fields, service)
    tools = await tools_of_request(fields, service)
    prompt = chat_prompt_of(fields, service.engine, None if tools is None else tools.described)
    if prompt.messages[-1].get("role") != "user":
        raise invalid("messages", "`messages`: expected the user's draft as the last one")
    num_settled, ids = await in_thread(partial(_ids, prompt, service, session_id is not None))
    committed, cached = 0, 0
    if ids:
        make = partial(service.engine.generate, ids, max_tokens=0, speculation="off")
        reply = service.start([await in_thread(make)], Priority.COMPOSE)
        draft = Draft(reply.streams[0], ids)
        older = service.supersede_draft(session_id, draft)
        committed, cached = (min(n, num_settled) for n in await _read(reply, request))
        if older is not None:
            service.engine.prefix_cache.forget(older.ids, common_length(older.ids, ids))
    body = {
        "total_tokens": num_settled,
        "cached_tokens": cached,
        "committed_tokens": committed,
        "ms": round(1e3 * (time.perf_counter() - began), 1),
    }
    return JSONResponse(body, headers=headers_of(request, fields))


async def _read(reply: Reply, request: Request) -> tuple[int, int]:
    """Wait until it is read or given up; return how many tokens are there, and were before."""
    generation = reply.generations[0]
    committed = 0

    def listen(tokens: int) -> None:
        nonlocal committed
        committed = max(committed, tokens)

    try:
        await reply.finish(request.receive, listen)
    except RequestFailed as failure:
        if failure.code != "cancelled":
            raise
        return committed, generation.stats.cached_tokens
    return generation.stats.prompt_tokens, generation.stats.cached_tokens


def _ids(prompt: ChatPrompt, service: Service, is_likely_sent: bool) -> tuple[int, Sequence[int]]:
    """Return how many ids are the draft's for good, and what to read: they, or the prompt."""
    ids = service.engine.encode_chat(
        prompt.messages,
        False,
        prompt.tools,
        continue_final_message=True,
        **prompt.variables,
    )
    if len(ids) > service.engine.context:
        raise too_long(len(ids), service.engine.context)
    stays = settled(ids, prompt.messages)
    if not is_likely_sent:
        return len(stays), stays
    as_sent = replace(prompt, add_generation_prompt=True, continue_final_message=False)
    try:
        whole, _ = service.prompts.ids(as_sent)
    except RequestFailed:  # as much as fits; what does not is the chat request's to say
        return len(stays), stays
    # A template may trim the draft, and tokens may reach over its end.
    return common_length(stays, whole), whole
