"""The body of a request: so many bytes and no more, in so much time, and JSON in them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from inferno.server.failures import CLIENT_GONE, RequestFailed, invalid
from inferno.server.fields import Fields

log = logging.getLogger("inferno.server")

# The longest contexts in use are some 128,000 tokens of five characters, and clients resend all.
MAX_BODY_BYTES = 8 << 20
# A body that is too large is read to its end, up to here, so that the client, which is still
# writing, gets to read what was wrong.
MAX_DISCARDED_BYTES = 64 << 20
BODY_SECONDS = 60.0


async def read_fields(request: Request, most: int = MAX_BODY_BYTES) -> Fields:
    """Return the fields of a JSON body of at most so many bytes. Raises RequestFailed."""
    body = await _read(request, most)
    # Parsing holds the interpreter; of what is this large, a thread of its own lets others in.
    parse = asyncio.to_thread(_parse, body) if len(body) > 1 << 16 else None
    fields = Fields(_parse(body) if parse is None else await parse)
    if request.app.state.loading.settings.logs_prompts:
        entry = {"id": request.scope.get("request_id"), "body": fields.values}
        log.info("asked", extra={"fields": entry})
    return fields


async def _read(request: Request, most: int) -> bytes:
    try:
        return await asyncio.wait_for(_read_all(request, most), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise RequestFailed(
            f"The body did not come within {BODY_SECONDS:.0f} seconds", 408, code="timeout"
        ) from None
    except ClientDisconnect:
        raise RequestFailed("The client is gone", CLIENT_GONE) from None


async def _read_all(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > MAX_DISCARDED_BYTES:
        raise _too_large(most)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            chunks.append(chunk)
        else:
            chunks.clear()
            if size > MAX_DISCARDED_BYTES:
                break
    if size > most:
        raise _too_large(most)
    return b"".join(chunks)


def _too_large(most: int) -> RequestFailed:
    return RequestFailed(
        f"The body: expected at most {most:,} bytes, found more",
        413,
        code="request_too_large",
    )


def _parse(body: bytes) -> Any:
    if not body.strip():
        raise invalid(None, "The body: expected a JSON object, found nothing", "invalid_json")
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise invalid(
            None,
            f"The body: expected UTF-8, found byte 0x{body[error.start]:02X} at {error.start:,}",
            "invalid_json",
        ) from None
    except RecursionError:
        raise invalid(
            None, "The body: expected JSON, found endless nesting", "invalid_json"
        ) from None
    except ValueError as error:  # also integers of thousands of digits
        raise invalid(None, f"The body: expected JSON, found {error}", "invalid_json") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON does not have")
