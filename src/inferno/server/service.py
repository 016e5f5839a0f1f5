"""What the routes share: the engine and its scheduler, and the drafts that are being typed."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
import threading
import time
from array import array
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
    from inferno.server.prompts import ChatPrompt

T = TypeVar("T")

# What is proportional to a body of so many bytes, a prompt of a thousand tokens or two, takes two
# milliseconds at most: with another thread for it the first token would come later.
SHORT_BODY = 8192

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

    @property
    def max_texts(self) -> int:
        """How many there can be at once, those that wait included."""
        return self.max_streams + self.max_waiting


@dataclass(frozen=True)
class Draft:
    """A text that is being typed: `ids` are the prompt that it would be if it were sent now."""

    stream: Stream
    ids: Sequence[int]


class RecentPrompts:
    """The ids of the chats that were asked for last, so that a draft is not tokenized again when it
    is sent. As many as fill the context twice."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._left = 2 * engine.context
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self._lock = threading.Lock()
        # A template that reads the clock may say something else next time.
        self._is_constant = "strftime_now" not in engine.template.template

    def knows(self, prompt: ChatPrompt) -> bool:
        """Tell whether `ids` is short work."""
        return self._key(prompt) in self._ids

    def ids(self, prompt: ChatPrompt) -> tuple[list[int], int]:
        """Return what `ChatPrompt.ids` does, and remember it. Takes a while."""
        key = self._key(prompt)
        if (known := self._ids.get(key)) is not None:
            return known.tolist(), 0
        ids, dropped = prompt.ids(self._engine)
        if not dropped and self._is_constant:
            with self._lock:
                older = self._ids.pop(key, ())
                self._ids[key] = array("i", ids)
                self._left += len(older) - len(ids)
                while self._left < 0:
                    self._left += len(self._ids.popitem(last=False)[1])
        return ids, dropped

    @staticmethod
    def _key(prompt: ChatPrompt) -> bytes:
        return hashlib.sha256(repr(prompt).encode("utf-8", "surrogatepass")).digest()


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
        self.prompts = RecentPrompts(engine)
        self._drafts: OrderedDict[str, Draft] = OrderedDict()

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

    def supersede_draft(self, session_id: str | None, newer: Draft | None = None) -> Draft | None:
        """Stop reading the session's last draft, which is returned: there is a newer one, or it
        was sent."""
        if session_id is None:
            return None
        older = self._drafts.pop(session_id, None)
        if older is not None and not older.stream.is_over:
            self.scheduler.cancel(older.stream)
        if newer is not None:
            self._drafts[session_id] = newer
            while len(self._drafts) > MAX_DRAFTS:
                self._drafts.popitem(last=False)
        return older

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


async def quickly(work: Callable[[], T], is_short: bool) -> T:
    """Run what may take long `in_thread`, unless it is known to be short: threads take time too."""
    if not is_short:
        return await in_thread(work)
    try:
        return work()
    except Exception as error:
        raise failure_of(error) from error


def is_short(request: Request) -> bool:
    """Tell whether what the request asks can be made ready at once."""
    length = request.headers.get("content-length", "")
    return length.isascii() and length.isdigit() and int(length[:9]) <= SHORT_BODY


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
