"""What went wrong, as clients of OpenAI's interface expect to be told: a status and an `error`."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Any

from inferno.errors import (
    Busy,
    ContextFull,
    InfernoError,
    InvalidOption,
    InvalidText,
    ModelNotFound,
    OutOfMemory,
    TemplateError,
)

log = logging.getLogger("inferno.server")

# Of a client that is asked to come again: a reply takes seconds, loading a little longer.
RETRY_SECONDS = 1
LOADING_RETRY_SECONDS = 5

CLIENT_GONE = 499  # nobody is there to be told; as nginx logs it

_OPTION = re.compile(r"`([A-Za-z_]\w*)(?:[.\[][^`]*)?`")


@dataclass
class RequestFailed(Exception):
    """A request that gets no answer but this; `extra` are further keys of the error."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**error, **self.extra}}

    def body_at(self, path: str) -> dict[str, Any]:
        """Return the body for who asked at `path`: Ollama's clients know a text alone."""
        return {"error": self.message} if path.startswith("/api/") else self.body

    @property
    def headers(self) -> dict[str, str]:
        headers = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, round(self.retry_after)))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def invalid(param: str | None, message: str, code: str = "invalid_value") -> RequestFailed:
    """Return the failure of a field that cannot be."""
    return RequestFailed(message, param=param, code=code)


def unsupported(param: str, message: str) -> RequestFailed:
    """Return the failure of a field that others have and this server has not."""
    return RequestFailed(message, param=param, code="unsupported_parameter")


def failure_of(error: BaseException) -> RequestFailed:
    """Return what a client is told of `error`: a 4xx for the client's, a 5xx for ours."""
    if isinstance(error, RequestFailed):
        return error
    if not isinstance(error, InfernoError):
        return _mistake(error, "internal-error")
    message = str(error)
    if isinstance(error, Busy):
        return RequestFailed(message, 429, "rate_limit_error", code=error.code, retry_after=1)
    if isinstance(error, OutOfMemory):
        return RequestFailed(message, 503, "unavailable_error", code=error.code, retry_after=5)
    if isinstance(error, ModelNotFound):
        return RequestFailed(message, 404, "not_found_error", "model", "model_not_found")
    if isinstance(error, (InvalidOption, InvalidText, TemplateError, ContextFull)):
        if named := _OPTION.match(error.message):
            return invalid(named[1], message)
        code = "context_length_exceeded" if isinstance(error, ContextFull) else error.code
        return RequestFailed(message, code=code)
    return _mistake(error, error.code)


def _mistake(error: BaseException, code: str) -> RequestFailed:
    # What it says may quote a prompt, or a path, so it is for the log of whoever serves.
    log.error("mistake", extra={"fields": {"error": f"{type(error).__name__}: {error}"[:300]}})
    return RequestFailed("The server made a mistake", 500, "server_error", code=code)


def too_long(prompt_tokens: int, context: int, param: str = "messages") -> RequestFailed:
    """Return the failure of a prompt that does not fit, with OpenAI's code and llama.cpp's keys."""
    return RequestFailed(
        f"The prompt has {prompt_tokens:,} tokens, and the context {context:,}: "
        f"{prompt_tokens - context:,} too many\nhint: shorten it"
        + (', or ask with `"truncation": "oldest_turns"`' if param == "messages" else ""),
        code="context_length_exceeded",
        param=param,
        extra={
            "n_prompt_tokens": prompt_tokens,
            "n_ctx": context,
            "excess_tokens": prompt_tokens - context,
        },
    )
