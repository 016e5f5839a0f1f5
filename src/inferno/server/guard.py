"""Who may ask: the right host, the right page, the right key. Plain ASGI, before any route.

A page that a browser has open anywhere can send requests to this machine. So a request from a page
of another origin is refused, and so is one whose Host is a name that is not ours: by DNS rebinding
a foreign page can come to call its own name this machine's.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from inferno.server.failures import RequestFailed
from inferno.server.page import is_page

PUBLIC_PATHS = frozenset({"/health", "/v1/health"})


@dataclass(frozen=True)
class Access:
    """Whom the server answers: `hosts` beside localhost and addresses, pages of `origins`, and who
    has one of `keys`, if there are any."""

    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    keys: Sequence[str] = ()


class Guard:
    """Lets requests through, or answers 401 or 403."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._keys = [key.encode() for key in access.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            failure = self._objection(scope["method"], scope["path"], Headers(scope=scope))
            if failure is not None:
                body = failure.body_at(scope["path"])
                response = JSONResponse(body, failure.status, failure.headers)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _objection(self, method: str, path: str, headers: Headers) -> RequestFailed | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            return _forbidden(
                "The Host header names a host that this server does not go by\n"
                "hint: start it with --allow-host, or use its address"
            )
        if (
            origin is not None
            and origin not in self._access.origins
            and not (self._is_ours(urlsplit(origin).netloc) and urlsplit(origin).netloc == host)
        ):
            return _forbidden(
                "Pages of this origin may not use this server\nhint: start it with --allow-origin"
            )
        is_preflight = method == "OPTIONS" and "access-control-request-method" in headers
        is_public = path in PUBLIC_PATHS or is_page(path)
        if self._keys and not is_public and not is_preflight:
            return self._check_key(headers)
        return None

    def _is_ours(self, netloc: str) -> bool:
        try:
            name = urlsplit(f"//{netloc}").hostname or ""
        except ValueError:
            return False
        if name == "localhost" or name.endswith(".localhost") or name in self._access.hosts:
            return True
        try:
            ipaddress.ip_address(name)  # no name, and so none that could be bound anew
        except ValueError:
            return False
        return True

    def _check_key(self, headers: Headers) -> RequestFailed | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            given = headers.get("x-api-key", "")
        # All keys are compared, each in constant time: how long it takes says nothing.
        matches = [hmac.compare_digest(key, given.strip().encode()) for key in self._keys]
        if any(matches):
            return None
        return RequestFailed(
            "An API key of this server is needed, as `Authorization: Bearer KEY`"
            if not given
            else "The API key is wrong",
            401,
            "authentication_error",
            code="invalid_api_key",
        )


def _forbidden(message: str) -> RequestFailed:
    return RequestFailed(message, 403, "permission_error", code="forbidden")
