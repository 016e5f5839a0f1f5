"""The generations of one request, from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.types import Receive

from inferno.scheduler import Priority, Scheduler, Stream, Update
from inferno.server.failures import CLIENT_GONE, RequestFailed, failure_of

if TYPE_CHECKING:
    from inferno.generation import Generation

# That the engine waits at most for the first piece of a reply to leave, once.
FIRST_SECONDS = 0.001


@dataclass(frozen=True)
class News:
    """An update of choice `index`."""

    index: int
    update: Update


class Reply:
    """The choices of one request on their way; made and read in the event loop.

    What is not read yet waits in memory: no more of it than the choices' tokens.
    """

    def __init__(self, scheduler: Scheduler, generations: Sequence[Generation]) -> None:
        self.generations = generations
        self.streams: list[Stream] = []
        self.began = time.perf_counter()
        self.first_token: float | None = None  # seconds after the beginning
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[News | None] = asyncio.Queue()
        self._first_sent = threading.Event()

    def start(self, priority: Priority) -> None:
        """Queue them all, or none. Raises Busy."""
        pairs = [(g, self._listener(index)) for index, g in enumerate(self.generations)]
        self.streams = self._scheduler.submit_all(pairs, priority)

    def cancel(self) -> None:
        """Stop what is not over yet."""
        for stream in self.streams:
            if not stream.is_over:
                self._scheduler.cancel(stream)

    async def news(self, patience: float | None = None) -> AsyncIterator[News | None]:
        """Yield what comes, until all are over, and None every `patience` seconds.

        Raises:
            RequestFailed: a choice failed, or the server is closing; the others are stopped.
        """
        left = len(self.streams)
        alarm: asyncio.TimerHandle | None = None
        try:
            while left:
                # A timeout of each wait would cost as much as the rest of what a token costs here.
                if patience is not None and alarm is None:
                    alarm = self._loop.call_later(patience, self._news.put_nowait, None)
                news = await self._news.get()
                if news is None:
                    alarm = None
                    yield None
                    continue
                if news.update.text and self.first_token is None:
                    self.first_token = time.perf_counter() - self.began
                if news.update.is_over:
                    left -= 1
                    if news.update.error is not None:
                        raise failure_of(news.update.error)
                    if self.generations[news.index].finish_reason == "cancelled":
                        raise RequestFailed(
                            "The request was cancelled: the server is closing, or a newer one "
                            "took its place",
                            503,
                            "unavailable_error",
                            code="cancelled",
                            retry_after=1,
                        )
                yield news
                if self.first_token is not None:
                    self._first_sent.set()
        finally:
            self._first_sent.set()
            if alarm is not None:
                alarm.cancel()
            self.cancel()

    async def finish(
        self, receive: Receive, progress: Callable[[int], None] = lambda processed: None
    ) -> None:
        """Wait for the end of all; stop if the client hangs up. Raises RequestFailed.

        `progress` hears how many tokens of the prompt are in the cache.
        """

        async def read() -> None:
            async for news in self.news():
                if news is not None and news.update.processed_tokens:
                    progress(news.update.processed_tokens)

        try:
            await unless(read(), hung_up(receive))
        finally:
            self.cancel()

    def _listener(self, index: int) -> Callable[[Update], None]:
        def listen(update: Update) -> None:
            self._loop.call_soon_threadsafe(self._news.put_nowait, News(index, update))
            # The next pass takes all cores, and with two of them the first piece would leave only
            # when it is over.
            if update.text and self.first_token is None:
                self._first_sent.wait(FIRST_SECONDS)

        return listen


async def unless(work: Coroutine[Any, Any, None], *endings: Coroutine[Any, Any, None]) -> None:
    """Do `work`, unless one of `endings` comes first. Raises RequestFailed in that case."""
    working = asyncio.ensure_future(work)
    tasks = [working, *map(asyncio.ensure_future, endings)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise RequestFailed("The client is gone", CLIENT_GONE)
        working.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def hung_up(receive: Receive) -> None:
    """Return when the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
