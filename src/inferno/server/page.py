"""The chat page on `/`: files that Vite made of `web/`, or a page that says how to make them."""

from __future__ import annotations

import gzip
import mimetypes
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.server.failures import RequestFailed

STATIC = Path(__file__).parent / "static"

# Files under this are named by what they contain.
ASSETS = "assets"

HEADERS = {
    # What a model writes can reach nobody: the page loads and asks for nothing from elsewhere.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

NOT_BUILT = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>inferno</title>
<h1>The server runs; its chat page was not built</h1>
<p>In a checkout, <code>make page</code> builds it; it needs Node.js 20 or newer.
Packages have it inside.</p>
<p>The model answers at <code>/v1/chat/completions</code>,
and <code>inferno chat</code> needs no page.</p>
"""

router = APIRouter(include_in_schema=False)


def is_page(path: str) -> bool:
    """Tell whether `path` is the page or a file of it, which ask whoever has no key for one."""
    return path in ("/", "/flame.svg") or path.startswith(f"/{ASSETS}/")


@router.head("/")
@router.get("/")
async def page(request: Request) -> Response:
    if not (STATIC / "index.html").exists():
        return Response(NOT_BUILT, media_type="text/html", headers=HEADERS)
    return _file(request, "index.html", {"cache-control": "no-cache"})


@router.get("/flame.svg")
async def icon(request: Request) -> Response:
    return _file(request, "flame.svg", {"cache-control": "max-age=86400"})


@router.get(f"/{ASSETS}/{{name}}")
async def asset(request: Request, name: str) -> Response:
    return _file(
        request, f"{ASSETS}/{name}", {"cache-control": "public, max-age=31536000, immutable"}
    )


def _file(request: Request, name: str, headers: dict[str, str]) -> Response:
    found = _files().get(name)
    if found is None:
        raise RequestFailed(
            f"{name[:200]!r}: no such file of the page", 404, "not_found_error", code="not_found"
        )
    media_type, plain, packed = found
    headers = {**HEADERS, **headers, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            packed, media_type=media_type, headers={**headers, "content-encoding": "gzip"}
        )
    return Response(plain, media_type=media_type, headers=headers)


@cache
def _files() -> dict[str, tuple[str, bytes, bytes]]:
    """Return what there is by name: media type, bytes, and the same packed."""
    found = {}
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            found[path.relative_to(STATIC).as_posix()] = (media_type, data, gzip.compress(data))
    return found
