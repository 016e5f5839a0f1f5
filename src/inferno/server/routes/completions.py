"""`POST /v1/completions`: raw prompts, gone on with, filled in, or only scored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.options import MAX_LOGPROBS
from inferno.server import openapi
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
from inferno.server.failures import unsupported
from inferno.server.fields import Fields
from inferno.server.figures import report, timings, usage
from inferno.server.prompts import completion_ids
from inferno.server.replies import Reply
from inferno.server.response_format import form_of_request
from inferno.server.sampling import choices_of, sampling_of
from inferno.server.service import Service, in_thread, service_of
from inferno.server.tokens import LogprobStream, finite, pieces

router = APIRouter()


@router.post("/completions", summary="Continue a text", openapi_extra=openapi.COMPLETIONS)
async def completions(request: Request) -> Response:
    """OpenAI's completions, with `echo`, `suffix`, and lists of prompts."""
    service = service_of(request)
    engine = service.engine
    fields = await read_fields(request)
    check_model(fields, service)
    delivery = delivery_of(fields)
    form = await form_of_request(fields)
    choices = choices_of(fields)
    best_of = fields.integer("best_of", 1, 2**31)
    if best_of is not None and best_of != choices:
        raise unsupported("best_of", "`best_of`: expected the same as `n`, or nothing")
    echoes = fields.flag("echo")
    if echoes and delivery.streams:
        raise unsupported("echo", "`echo`: expected an answer that is not streamed")
    top = fields.integer("logprobs", 0, MAX_LOGPROBS)
    params = sampling_of(fields, engine, logprobs=0 if top is None else max(1, top))
    params = params if form is None else params.merged(**form.options)
    most = max(1, service.settings.max_texts // choices)  # more would never find room
    prompts_of = partial(completion_ids, fields, engine, most)
    prompts = await in_thread(prompts_of)
    fields.finish(strict=service.settings.strict)

    generations = await in_thread(partial(generations_of, service, prompts, params, choices))
    reply = service.start(generations, delivery.priority)
    texts = [
        _Text(service, generation, prompts[index // choices], top, echoes)
        for index, generation in enumerate(generations)
    ]
    headers = headers_of(request, fields)
    if delivery.streams:
        chunks = _chunks(service, reply, delivery, texts, fields, len(prompts))
        return EventStream(chunks, reply.cancel, headers=headers)
    await reply.finish(request.receive)
    if echoes and top is not None:
        for text in texts:
            await in_thread(text.score_prompt)
    body = {
        **envelope("text_completion", new_id("cmpl"), service),
        "choices": [
            {
                "index": index,
                "text": text.prompt_text + text.generation.text,
                "logprobs": text.logprobs(text.generation.text, is_over=True),
                "finish_reason": text.generation.finish_reason,
            }
            for index, text in enumerate(texts)
        ],
        "usage": usage(generations, len(prompts)),
        "timings": timings(generations[0]),
        "inferno": report(reply, fields.ignored),
    }
    return Response(to_json(body), media_type="application/json", headers=headers)


async def _chunks(
    service: Service,
    reply: Reply,
    delivery: Delivery,
    texts: Sequence[_Text],
    fields: Fields,
    num_prompts: int,
) -> AsyncIterator[bytes]:
    head = envelope("text_completion", new_id("cmpl"), service)
    if delivery.includes_usage:
        head["usage"] = None

    def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
        return event({**head, "choices": choices, **more})

    # What comes at once is sent at once.
    left, said = len(reply.generations), list[bytes]()
    async for news in reply.news(service.settings.ping_seconds):
        if news is None:
            yield PING
            continue
        update, text = news.update, texts[news.index]
        logprobs = text.logprobs(update.text, is_over=update.is_over)
        if update.text or update.is_over:
            part = {
                "index": news.index,
                "text": update.text,
                "logprobs": logprobs,
                "finish_reason": text.generation.finish_reason if update.is_over else None,
            }
            left -= update.is_over
            more = {} if left else {"inferno": report(reply, fields.ignored)}
            said.append(chunk([part], **more))
        if said and left:
            yield b"".join(said)
            said = []
    if delivery.includes_usage:
        said.append(chunk([], usage=usage(reply.generations, num_prompts)))
    yield b"".join([*said, DONE])


class _Text:
    """One text of the answer, and the log probabilities in the old shape: parallel lists."""

    def __init__(
        self, service: Service, generation: Any, ids: list[int], top: int | None, echoes: bool
    ) -> None:
        self.generation = generation
        self.prompt_text = ""
        self._engine = service.engine
        self._in_turn = service.scheduler.in_turn
        self._ids = ids
        self._top = top
        self._stream = LogprobStream(service.engine, generation, ids[-1], top or 0)
        self._scored: list[dict[str, Any]] = []  # of the prompt
        self._offset = 0  # characters before the next token
        if echoes:
            self.prompt_text = service.engine.tokenizer.decode(ids)

    def score_prompt(self) -> None:
        """Compute the log probabilities of the prompt's tokens. Takes a while."""
        texts = list(pieces(self._engine, self._ids, None))
        scores = self._engine.token_logprobs(
            self._ids, max(1, self._top or 0), in_turn=self._in_turn
        )
        for index, (piece, score) in enumerate(zip(texts, scores, strict=True)):
            previous = self._ids[index - 1] if index else None
            entry: dict[str, Any] = {"token": piece.decode("utf-8", "replace"), "logprob": None}
            if score is not None:
                entry["logprob"] = finite(score.logprob)
                # The token itself is always among them, by the same float.
                best = dict(score.top[: self._top])
                best[score.token] = score.logprob
                entry["top_logprobs"] = [
                    {"token": self._spelled(id, previous), "logprob": finite(logprob)}
                    for id, logprob in best.items()
                ]
            self._scored.append(entry)

    def logprobs(self, text: str, *, is_over: bool) -> dict[str, Any] | None:
        if self._top is None:
            return None
        entries, self._scored = self._scored, []
        entries += self._stream.due(text, is_over=is_over)
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(entry["token"])
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [_best(entry, self._top) for entry in entries],
            "text_offset": offsets,
        }

    def _spelled(self, id: int, previous: int | None) -> str:
        return next(pieces(self._engine, [id], previous)).decode("utf-8", "replace")


def _best(entry: dict[str, Any], top: int) -> dict[str, float] | None:
    """Return the likely tokens of a place, the chosen one always among them; null for the first."""
    if entry["logprob"] is None:
        return None
    best = {token["token"]: token["logprob"] for token in entry["top_logprobs"]}
    # Of two tokens that are spelled alike the likelier counts.
    best[entry["token"]] = max(entry["logprob"], best.get(entry["token"], entry["logprob"]))
    return best if top else {entry["token"]: entry["logprob"]}
