"""The application: which routes there are, and what happens where none of them answers."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import inferno
from inferno.server import page
from inferno.server.conversations import Conversations
from inferno.server.failures import CLIENT_GONE, RequestFailed, failure_of
from inferno.server.guard import Access, Guard
from inferno.server.recorder import Recorder
from inferno.server.routes import (
    chat_completions,
    completions,
    compose,
    embeddings,
    models,
    ollama,
    state,
    tokenization,
)
from inferno.server.routes.conversations import router as routes_of_conversations
from inferno.server.service import Loading

log = logging.getLogger("inferno.server")

# Each answers at its path and under /v1: many clients omit that, and as many do not. The schema has
# the one that OpenAI has, or llama.cpp.
VERSIONED = (chat_completions, completions, compose, embeddings, models)
UNVERSIONED = (tokenization, state)

_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)


def create_app(
    loading: Loading, access: Access, conversations: Conversations | None = None
) -> FastAPI:
    """Make the application; until `loading` is finished, it answers 503."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if loading.service is not None:
            loading.service.close()
        if conversations is not None:
            app.state.recorder.close()
            conversations.close()

    # The pages of documentation that FastAPI has load scripts from elsewhere.
    app = FastAPI(
        title="inferno",
        version=inferno.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.loading = loading
    app.state.conversations = conversations
    app.state.recorder = None if conversations is None else Recorder(conversations)
    for module in (*VERSIONED, *UNVERSIONED):
        is_versioned = module in VERSIONED
        app.include_router(module.router, prefix="/v1", include_in_schema=is_versioned)
        app.include_router(module.router, include_in_schema=not is_versioned)
    app.include_router(routes_of_conversations)
    app.include_router(page.router)
    app.include_router(ollama.router)
    app.add_exception_handler(RequestFailed, _answer_failure)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_mistake)
    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "x-ignored-params", "x-session-id"],
        )
    app.add_middleware(Guard, access=access)
    app.add_middleware(_Journal)
    return app


async def _answer_failure(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, RequestFailed)
    return _answer(request, failure)


async def _answer_http(request: Request, error: Exception) -> Response:
    """Answer for the framework: no such path, no such method."""
    assert isinstance(error, HTTPException)
    failure = RequestFailed(
        f"{request.method} {request.url.path[:200]}: {error.detail.lower()}",
        error.status_code,
        "not_found_error" if error.status_code == 404 else "invalid_request_error",
        code=error.detail.lower().replace(" ", "_"),
    )
    return _answer(request, failure, error.headers)


async def _answer_mistake(request: Request, error: Exception) -> Response:
    return _answer(request, failure_of(error))


def _answer(
    request: Request, failure: RequestFailed, headers: Mapping[str, str] | None = None
) -> Response:
    body = failure.body_at(request.url.path)
    return JSONResponse(body, failure.status, {**failure.headers, **(headers or {})})


class _Journal:
    """Gives each request an id, and writes a line about it. Prompts and replies are not written."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["request_id"] = request_id
        began, status = time.perf_counter(), CLIENT_GONE

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request_id.encode())
                message["headers"] = [*message.get("headers", []), named]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        finally:
            # A visit of the page asks for ten files.
            is_routine = page.is_page(scope["path"]) and status < 400
            log.log(
                logging.DEBUG if is_routine else logging.INFO,
                "request",
                extra={
                    "fields": {
                        "id": request_id,
                        "method": scope["method"],
                        "path": scope["path"],
                        "status": status,
                        "ms": round(1e3 * (time.perf_counter() - began), 1),
                    }
                },
            )
