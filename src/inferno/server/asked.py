"""What requests of every kind may ask: a model, to be streamed, and so many texts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from inferno.excerpt import shown
from inferno.scheduler import Priority
from inferno.server.failures import RequestFailed
from inferno.server.fields import Fields, notes_header

if TYPE_CHECKING:
    from inferno.generation import Generation
    from inferno.options import SamplingParams
    from inferno.server.service import Service


@dataclass(frozen=True)
class Delivery:
    """How the answer is to come."""

    streams: bool
    includes_usage: bool
    reports_progress: bool
    reports_timings: bool
    priority: Priority


def delivery_of(fields: Fields) -> Delivery:
    """Read how the answer is to come. Raises RequestFailed."""
    options = Fields(fields.mapping("stream_options") or {})
    includes_usage = options.flag("include_usage")
    options.ignore("include_obfuscation")
    for name in options.ignored:
        fields.note(f"stream_options.{name}")
    background = fields.one_of("priority", ("interactive", "background")) == "background"
    return Delivery(
        fields.flag("stream"),
        includes_usage,
        fields.flag("return_progress"),
        fields.flag("timings_per_token"),
        Priority.BACKGROUND if background else Priority.INTERACTIVE,
    )


def check_model(fields: Fields, service: Service) -> None:
    """Take any name for the one model that there is, with a note; if strict, only its own."""
    name = fields.text("model")
    if name is None or name.removesuffix(":latest") == service.model:
        return
    if service.settings.strict:
        raise RequestFailed(
            f"The model {shown(name)} does not exist; there is `{service.model}`",
            404,
            "not_found_error",
            "model",
            "model_not_found",
        )
    fields.note("model")


def generations_of(
    service: Service, prompts: Sequence[Sequence[int]], params: SamplingParams, choices: int
) -> list[Generation]:
    """Return `choices` texts of each prompt, which differ in what is drawn. Takes a while."""
    return [
        service.engine.generate(ids, params, choice=params.choice + choice)
        for ids in prompts
        for choice in range(choices)
    ]


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(12)}"


def envelope(kind: str, id: str, service: Service) -> dict[str, Any]:
    """Return what every object of an answer begins with."""
    return {
        "id": id,
        "object": kind,
        "created": int(time.time()),
        "model": service.model,
        "system_fingerprint": service.fingerprint,
    }


def headers_of(request: Request, fields: Fields) -> dict[str, str]:
    """Return the headers of an answer: what was ignored, and the session that was named."""
    headers = {}
    if fields.ignored:
        headers["x-ignored-params"] = notes_header(fields.ignored)
    if session_id := request.headers.get("x-session-id"):
        headers["x-session-id"] = session_id
    return headers
