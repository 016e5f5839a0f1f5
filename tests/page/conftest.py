"""Fixtures: the built page, a browser, and a server with the default model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import servers
from inferno import Engine
from inferno.server import page as built
from inferno.server.conversations import Conversations

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
MODEL = os.environ.get("MODEL", "smollm2-135m-instruct")

# Root has no sandbox to give; the rest keeps the browser from asking its makers for things.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A name that a browser does not take for this machine's own.
    "--host-resolver-rules=MAP another.test 127.0.0.1",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests in the browser where something they need is not there, and say what."""
    reason = None
    if CHROMIUM is None:
        reason = "no Chromium is installed (apt install chromium)"
    elif not (built.STATIC / "index.html").exists():
        reason = "the page was not built (make page)"
    for item in items:
        if reason and Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def engine() -> Engine:
    engine = Engine.load(MODEL)
    engine.prefix_cache.capacity = 1 << 28
    return engine


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[servers.Running]:
    kept = Conversations("sqlite://")
    with servers.running(lambda: engine, conversations=kept) as it:
        yield servers.wait_until_loaded(it)


# Closed after this module: Playwright keeps an event loop running, in which no other can start.
@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
