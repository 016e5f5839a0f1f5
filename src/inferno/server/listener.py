"""From the application to a port: sockets, logs, signals, and a graceful end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.server import HANDLED_SIGNALS

from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.server.app import create_app
from inferno.server.conversations import Conversations
from inferno.server.guard import Access
from inferno.server.service import Loading, Settings

if TYPE_CHECKING:
    from types import FrameType

    from inferno.engine import Engine

log = logging.getLogger("inferno.server")

MIN_KEY_CHARACTERS = 8
# What to do about an address that is not to be had.
REMEDIES = {
    errno.EADDRINUSE: "is a server running already? --port takes another port",
    errno.EADDRNOTAVAIL: "no network of this machine has that address; 0.0.0.0 is all it has",
    errno.EACCES: "ports below 1024 are the system's; --port takes another port",
}
# Who presses Ctrl-C and sees nothing for longer wonders whether it was noticed.
SILENT_SECONDS = 0.3
# How long a thread may keep the interpreter while another waits: Python's own 5 ms are two tokens.
SWITCH_SECONDS = 0.0005


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, access: Access) -> None:
    """Refuse to serve other machines without a key. Raises InvalidOption."""
    if not is_loopback(host) and not access.keys:
        raise InvalidOption(
            f"`--host`: other machines could use the server at {shown(host)} without a key",
            hint="give it keys with --api-key-file or INFERNO_API_KEY",
        )
    for key in access.keys:
        if len(key) < MIN_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
            raise InvalidOption(
                f"API keys: expected at least {MIN_KEY_CHARACTERS} printable ASCII characters each"
            )


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host` and `port`; port 0 is any free one.

    Raises:
        InvalidOption: the port is taken, or the host is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidOption(f"`--host`, `--port`: {shown(host)}, {port}: {error}") from None
    try:
        if sys.platform == "win32":
            # There, the other option lets a second server take a port away from the first.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(256)
    except (OSError, OverflowError) as error:
        listening.close()
        raise InvalidOption(
            f"`--host`, `--port`: cannot listen on {shown(host)} port {port}: "
            f"{getattr(error, 'strerror', None) or error}",
            hint=REMEDIES.get(getattr(error, "errno", 0), "--host and --port take others"),
        ) from None
    return listening


class _Uvicorn(uvicorn.Server):
    """Takes a signal as a wish that is fulfilled: `run` returns, and nothing is raised again."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End when what runs is done; a second signal is the system's, which ends us at once."""
        self.should_exit = True
        for handled in HANDLED_SIGNALS:
            signal.signal(handled, signal.SIG_DFL)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, and say what is waited for if that takes a while."""
        ending = asyncio.ensure_future(super().shutdown(sockets))
        await asyncio.wait({ending}, timeout=SILENT_SECONDS)
        if not ending.done():
            log.warning(
                "ending when the requests that run are over, in %d s at most; "
                "Ctrl-C again ends at once",
                self.config.timeout_graceful_shutdown,
            )
        await ending


class Server:
    """A server on a port. `run` returns when it has been asked to end, by a signal or `stop`."""

    def __init__(
        self,
        load: Callable[[], Engine],
        listening: socket.socket,
        settings: Settings | None = None,
        access: Access | None = None,
        conversations: Conversations | None = None,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it; `announce` is called when the model is loaded and requests are answered."""
        self.settings = settings or Settings()
        self.loading = Loading(self.settings)
        self.loaded = threading.Event()  # or that has failed
        self._load = load
        self._announce = announce
        self._listening = listening
        self._failure: BaseException | None = None
        config = uvicorn.Config(
            create_app(self.loading, access or Access(), conversations),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(self.settings.grace_seconds)),
        )
        self._uvicorn = _Uvicorn(config)

    def run(self) -> None:
        """Serve; the model is loaded meanwhile. Raises what loading raises."""
        loader = threading.Thread(target=self._load_engine, name="inferno-loading", daemon=True)
        loader.start()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._uvicorn.run(sockets=[self._listening])
        finally:
            self._listening.close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End `run` soon; from any thread."""
        self._uvicorn.should_exit = True

    def _load_engine(self) -> None:
        try:
            self.loading.finish(self._load())
            self._announce()
        except BaseException as error:
            self._failure = error
            self.stop()
        self.loaded.set()


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether a record is more than the trace of a reply that was ended on purpose."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError)


class LogFormat(logging.Formatter):
    """A line for people: the time, what happened, its figures."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        if fields is None:
            return f"{clock} {super().format(record)}"
        words = " ".join(f"{name}={_one_line(value)}" for name, value in fields.items())
        return f"{clock} {record.getMessage()} {words}"


class JsonLogFormat(logging.Formatter):
    """A line for programs: one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        entry = {"time": record.created, "level": record.levelname.lower()}
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return json.dumps({**entry, "message": message, **fields})


def log_to_stderr(*, as_json: bool, level: int = logging.INFO) -> None:
    """Write the server's log, and the mistakes of uvicorn, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLogFormat() if as_json else LogFormat())
    handler.addFilter(_is_news)
    for name, at_least in (("inferno.server", level), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(at_least)


def _one_line(value: object) -> str:
    """Return `value` so that a client cannot forge a line of the log."""
    if isinstance(value, dict):
        return json.dumps(value)
    text = str(value)
    return text if text.isascii() and text.isprintable() and " " not in text else shown(text)
