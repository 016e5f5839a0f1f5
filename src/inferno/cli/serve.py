"""`inferno serve [MODEL]`: the engine over HTTP: a chat page, and what OpenAI's clients ask for."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from inferno.catalogue import DEFAULT_MODEL
from inferno.cli.flags import Parser, add_engine_flags
from inferno.cli.loading import load, print_load_line
from inferno.cli.style import format_bytes
from inferno.errors import InvalidOption

if TYPE_CHECKING:
    from inferno import Engine

KEY_VARIABLE = "INFERNO_API_KEY"
HOST, PORT = "127.0.0.1", 8080

EXAMPLES = """\
examples:
  inferno serve
  inferno serve model.gguf --port 9000
  curl http://127.0.0.1:8080/v1/chat/completions \\
    -d '{"messages": [{"role": "user", "content": "Hello"}]}'
"""


def main(arguments: list[str]) -> int:
    """Serve until a signal comes."""
    parser = Parser(
        "serve",
        usage="serve [MODEL] [OPTIONS]",
        examples=EXAMPLES,
        description="Serve a model to this machine: a chat page, and an API like OpenAI's.",
    )
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", default=DEFAULT_MODEL,
        help=f".gguf file, directory or name ({DEFAULT_MODEL})",
    )  # fmt: skip
    parser.add_argument("--host", default=HOST, help=f"address to listen on ({HOST})")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"0: any free ({PORT})")
    parser.add_argument(
        "--api-key-file", metavar="FILE", help="keys, one a line; or $" + KEY_VARIABLE
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name that the server goes by; can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="ORIGIN",
        help="let pages of https://… use the server; can be repeated",
    )  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="refuse fields that would be ignored")
    parser.add_argument(
        "--parallel", type=int, default=16, metavar="N", help="texts written at once (16)"
    )
    parser.add_argument(
        "--queue", type=int, default=64, metavar="N", help="requests that may wait (64)"
    )
    parser.add_argument(
        "--cache-memory", type=float, metavar="GB",
        help="for keys and values (four contexts, or half of what is free)",
    )  # fmt: skip
    parser.add_argument(
        "--conversations", metavar="FILE",
        help="what the chat page keeps; a database's URL, or off",
    )  # fmt: skip
    parser.add_argument("--log-json", action="store_true", help="a JSON object a line on stderr")
    parser.add_argument(
        "--log-prompts", action="store_true", help="write what requests say too, whole"
    )
    parser.add_argument("--quiet", action="store_true", help="write no line for each request")
    add_engine_flags(parser)
    options = parser.parse(arguments)
    _check(options)
    return _serve(options)


def port_conflict() -> str | None:
    """Return why the server could not listen where it does by default; None if it could."""
    from inferno.server.listener import bind

    try:
        bind(HOST, PORT).close()
    except InvalidOption as error:
        return error.message
    return None


def _check(options: argparse.Namespace) -> None:
    for name, low, high in (("port", 0, 65535), ("parallel", 1, 256), ("queue", 0, 100_000)):
        value = getattr(options, name)
        if not low <= value <= high:
            raise InvalidOption(f"`--{name}`: expected {low} to {high}, found {value}")
    if options.cache_memory is not None and not 0 < options.cache_memory < 1e6:
        raise InvalidOption(
            f"`--cache-memory`: expected gigabytes above 0, found {options.cache_memory:g}"
        )


def _keys(file: str | None) -> list[str]:
    """Return the keys of `file` and of the environment."""
    keys = [os.environ[KEY_VARIABLE]] if os.environ.get(KEY_VARIABLE) else []
    if file is not None:
        try:
            with open(file, encoding="utf-8") as lines:
                found = [line.strip() for line in lines]
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(f"`--api-key-file`: {error}") from None
        found = [key for key in found if key and not key.startswith("#")]
        if not found:
            raise InvalidOption(f"`--api-key-file`: expected a key in {file}, found none")
        keys += found
    return keys


def _conversations_url(given: str | None) -> str | None:
    """Return the URL of the database of conversations, SQLAlchemy's; None to keep none."""
    if given == "off":
        return None
    if given is not None and "://" in given:
        return given
    if given is None:
        import platformdirs

        home = os.environ.get("INFERNO_HOME")
        given = os.path.join(home or platformdirs.user_data_dir("inferno"), "conversations.db")
    return f"sqlite:///{os.path.abspath(os.path.expanduser(given))}"


def _serve(options: argparse.Namespace) -> int:
    import logging

    from inferno.server.conversations import Conversations
    from inferno.server.guard import Access
    from inferno.server.listener import Server, bind, check_exposure, log_to_stderr
    from inferno.server.service import Settings

    hosts = [*options.allow_host, options.host]
    access = Access(
        [host.lower() for host in hosts], options.allow_origin, _keys(options.api_key_file)
    )
    check_exposure(options.host, access)
    settings = Settings(
        options.strict, options.parallel, options.queue, logs_prompts=options.log_prompts
    )
    url = _conversations_url(options.conversations)
    conversations = None if url is None else Conversations(url)
    listening = bind(options.host, options.port)
    log_to_stderr(
        as_json=options.log_json, level=logging.WARNING if options.quiet else logging.INFO
    )

    def load_engine() -> Engine:
        engine = load(options)
        if options.cache_memory is not None:
            engine.prefix_cache.capacity = int(options.cache_memory * 1e9)
        print_load_line(engine)
        memory = engine.memory
        cache = engine.prefix_cache.capacity
        print(
            f"memory: {format_bytes(memory.weights)} for weights, up to {format_bytes(cache)} for "
            f"keys and values ({cache // memory.kv_cache_per_token:,} tokens)",
            file=sys.stderr,
        )
        return engine

    def announce() -> None:
        host, port = listening.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)

    server = Server(load_engine, listening, settings, access, conversations, announce)
    server.run()
    if not server.loaded.is_set():
        # A thread that loads cannot be stopped, and must not outlive the interpreter.
        sys.stderr.flush()
        os._exit(0)
    return 0
