"""A chat under way: from the fields of a request to turns that are being written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from inferno.scheduler import Update
from inferno.server.asked import generations_of
from inferno.server.failures import RequestFailed
from inferno.server.fields import Fields
from inferno.server.figures import report, usage
from inferno.server.prompts import chat_prompt_of
from inferno.server.recorder import Record, record_of
from inferno.server.replies import News, Reply
from inferno.server.response_format import Form, form_of_request
from inferno.server.sampling import chat_logprobs_of, choices_of, sampling_of
from inferno.server.service import is_short, quickly, session_id_of
from inferno.server.tokens import LogprobStream
from inferno.server.tools import ToolUse, tools_of_request
from inferno.server.turns import Part, Thinking, Turn, tokens_of_thought

if TYPE_CHECKING:
    from inferno.generation import Generation
    from inferno.scheduler import Priority
    from inferno.server.service import Service

REASONING_FORMATS = ("auto", "deepseek", "none")


@dataclass(frozen=True)
class ChatNews:
    """What is new of choice `index`: parts of its turn, and log probabilities of its text."""

    index: int
    parts: list[Part]
    logprobs: list[dict[str, Any]]
    update: Update
    turn: Turn
    generation: Generation


@dataclass
class Chat:
    """The choices of a chat, on their way."""

    service: Service
    fields: Fields
    reply: Reply
    turns: list[Turn]
    logprobs: list[LogprobStream]  # none, if nobody asked for them
    prompt_tokens: int
    dropped_messages: int
    record: Record | None = None  # of the first choice

    @property
    def generations(self) -> list[Generation]:
        return list(self.reply.generations)

    async def news(self) -> AsyncIterator[ChatNews | None]:
        """Yield what comes, and None where nothing came for a while. Raises as `Reply.news`."""
        try:
            async for news in self.reply.news(self.service.settings.ping_seconds):
                yield None if news is None else self._read(news)
        except RequestFailed:
            self._end_record("interrupted")
            raise

    def _read(self, news: News) -> ChatNews:
        index, update = news.index, news.update
        parts = self.turns[index].push(update.text, is_over=update.is_over)
        entries = (
            self.logprobs[index].due(update.text, is_over=update.is_over) if self.logprobs else []
        )
        if self.record is not None and index == 0:
            self.record.take(self.turns[0].said)
            if update.is_over:
                self._end_record("complete", self.finish_reason(0))
        return ChatNews(
            index, parts, entries, update, self.turns[index], self.reply.generations[index]
        )

    def _end_record(self, status: str, finish_reason: str | None = None) -> None:
        if self.record is not None:
            self.record.end(status, finish_reason)

    def cancel(self) -> None:
        """Stop what is not over yet."""
        self.reply.cancel()
        self._end_record("interrupted", "cancelled")

    async def finish(self, request: Request) -> None:
        """Wait for the end of all. Raises RequestFailed."""
        try:
            await self.reply.finish(request.receive)
            for turn, generation in zip(self.turns, self.generations, strict=True):
                turn.push(generation.text, is_over=True)
            if self.record is not None:
                self.record.take(self.turns[0].said)
                self._end_record("complete", self.finish_reason(0))
        finally:
            self._end_record("interrupted", "cancelled")

    def all_logprobs(self, index: int) -> list[dict[str, Any]]:
        """Return the log probabilities of a choice that is finished."""
        return self.logprobs[index].due(self.generations[index].text, is_over=True)

    def finish_reason(self, index: int) -> str:
        return self.turns[index].finish_reason(self.generations[index].finish_reason)

    def usage(self) -> dict[str, Any]:
        """Return token counts, those of thoughts among them."""
        counts = usage(self.generations)
        pairs = zip(self.turns, self.generations, strict=True)
        thought = sum(
            tokens_of_thought(self.service.engine, g) for turn, g in pairs if turn.reasoning
        )
        counts["completion_tokens_details"]["reasoning_tokens"] = thought
        return counts

    def report(self) -> dict[str, Any]:
        return report(self.reply, self.fields.ignored, self.dropped_messages)


async def begin_chat(
    request: Request, service: Service, fields: Fields, priority: Priority
) -> Chat:
    """Read the fields of a chat that nobody has read yet, and queue its choices.

    Raises:
        RequestFailed: the request cannot be answered, or not now.
    """
    engine = service.engine
    session_id = session_id_of(request)
    wants_logprobs, top = chat_logprobs_of(fields)
    tools = await tools_of_request(fields, service)
    form = await form_of_request(fields)
    prompt = chat_prompt_of(fields, engine, tools.described if tools is not None else None)
    choices = choices_of(fields)
    params = sampling_of(fields, engine, logprobs=max(1, top) if wants_logprobs else 0)
    separates = fields.one_of("reasoning_format", REASONING_FORMATS) != "none"
    said = prompt.messages[-1].get("content") if prompt.continue_final_message else ""
    record = record_of(request, fields, said if isinstance(said, str) else "")
    fields.finish(strict=service.settings.strict)

    def prepare() -> tuple[list[int], int, Thinking, list[Generation]]:
        ids, dropped = service.prompts.ids(prompt)
        thinking = Thinking.after(ids, engine)
        held = params.merged(**_constraint(tools, form, thinking))
        return ids, dropped, thinking, generations_of(service, [ids], held, choices)

    is_known = is_short(request) or service.prompts.knows(prompt)
    ids, dropped, thinking, generations = await quickly(
        prepare, is_known and tools is None and form is None and not params.is_constrained
    )
    service.supersede_draft(session_id)
    reply = service.start(generations, priority)
    return Chat(
        service,
        fields,
        reply,
        [
            Turn(None if tools is None else tools.format, thinking if separates else None)
            for _ in generations
        ],
        [LogprobStream(engine, g, ids[-1], top) for g in generations] if wants_logprobs else [],
        len(ids),
        dropped,
        record,
    )


def _constraint(tools: ToolUse | None, form: Form | None, thinking: Thinking) -> dict[str, Any]:
    """Return the options that hold a reply to its tools and form. Raises RequestFailed."""
    if tools is not None:
        return tools.options(form, thinking)
    if form is None:
        return {}
    if not thinking.is_open:
        return form.options
    return {
        "grammar": f"start: thought BLANKS {form.lark()}\n"
        f"thought[lazy]: {thinking.rule}\nTEXT: /(?s:.*)/\nBLANKS: /\\s*/"
    }
