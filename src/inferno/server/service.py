"""What the routes share: the engine and its scheduler, and the drafts that are being typed."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request

from inferno.scheduler import Priority, Scheduler, Stream
from inferno.server.failures import LOADING_RETRY_SECONDS, RequestFailed, failure_of
from inferno.server.replies import Reply
from inferno.tool_calls import ToolFormat

if TYPE_CHECKING:
    from inferno.engine import Engine
    from inferno.generation import Generation

T = TypeVar("T")

# Sessions that a draft may be typed in at the same time; of older ones the draft goes on unwatched.
MAX_DRAFTS = 256
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True)
class Settings:
    """How the server was started."""

    strict: bool = False
    max_streams: int = 16
    max_waiting: int = 64
    # Between pings while nothing else is sent: proxies and clients give up after 30 to 60.
    ping_seconds: float = 10.0
    grace_seconds: float = 10.0  # for what runs when the server is asked to end
    logs_prompts: bool = False


class Service:
    """A loaded engine that answers requests."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.model = engine.config.name
        self.created = int(time.time())
        self.fingerprint = _fingerprint(engine)
        self.scheduler = Scheduler(
            engine, max_streams=settings.max_streams, max_waiting=settings.max_waiting
        )
        self._drafts: OrderedDict[str, Stream] = OrderedDict()

    @functools.cached_property
    def tool_format(self) -> ToolFormat:
        """How the model calls tools. Raises InvalidOption if nobody knows; takes a while."""
        engine = self.engine
        known = [id for id in engine.stop_ids if id < engine.num_tokens]
        ends = [engine.tokenizer.token_text(id) for id in known]
        return ToolFormat.of(engine.template, engine.tokenizer.control_tokens, ends)

    def start(
        self, generations: Sequence[Generation], priority: Priority = Priority.INTERACTIVE
    ) -> Reply:
        """Queue the generations of one request, all or none. Raises RequestFailed."""
        reply = Reply(self.scheduler, generations)
        try:
            reply.start(priority)
        except Exception as error:
            failure = failure_of(error)
            if failure.status == 429:
                failure.retry_after = self.scheduler.expected_wait()
            raise failure from None
        return reply

    def supersede_draft(self, session_id: str | None, stream: Stream | None = None) -> None:
        """Stop reading the session's last draft: `stream` reads a newer one, or it was sent."""
        if session_id is None:
            return
        older = self._drafts.pop(session_id, None)
        if older is not None:
            self.scheduler.cancel(older)
        if stream is not None:
            self._drafts[session_id] = stream
            while len(self._drafts) > MAX_DRAFTS:
                self._drafts.popitem(last=False)

    def close(self) -> None:
        """End what still runs."""
        self.scheduler.close()


class Loading:
    """The service that will be there once the engine is loaded."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.service: Service | None = None

    def finish(self, engine: Engine) -> None:
        self.service = Service(engine, self.settings)


def service_of(request: Request) -> Service:
    """Return the service, or fail with 503 while the model is being loaded."""
    loading: Loading = request.app.state.loading
    if loading.service is None:
        raise RequestFailed(
            "Loading model",
            503,
            "unavailable_error",
            code="loading",
            retry_after=LOADING_RETRY_SECONDS,
        )
    return loading.service


def session_id_of(request: Request) -> str | None:
    """Return the `x-session-id` of a request, if it has one."""
    value = request.headers.get("x-session-id")
    if value is None:
        return None
    if not _SESSION_ID.fullmatch(value):
        raise RequestFailed(
            "`x-session-id`: expected 1 to 128 printable ASCII characters",
            param="x-session-id",
            code="invalid_value",
        )
    return value


async def in_thread(work: Callable[[], T]) -> T:
    """Run what takes long, as templates and tokenizers may, beside the event loop."""
    try:
        return await asyncio.to_thread(work)
    except Exception as error:
        raise failure_of(error) from error


def _fingerprint(engine: Engine) -> str:
    """Return a name of all that decides which text comes: the model, its formats, this version.

    Threads and instruction sets do not.
    """
    import inferno

    parts = (
        inferno.__version__,
        repr(engine.config),
        repr(engine.weight_formats),
        str(engine.memory.weights),
        engine.template.template,
    )
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    return f"b{inferno.__version__}-{digest[:10]}"
