"""How the chat page feels, and what it looks like: `python benchmarks/page.py [--screens FOLDER]`.

In a conversation of 2,000 messages, with a reply coming: frames a second while it is scrolled, and
milliseconds from a key to the frame that shows it, while drafts are read ahead. Needs Chromium, the
built page (`make page`) and the tests' libraries. With `--screens`, draws each screen instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser, sync_playwright

import servers
from inferno import Engine
from inferno.server.conversations import Conversations, Message
from page.chats import ChatPage
from page.conftest import CHROMIUM, FLAGS, MODEL

MESSAGES = 2000
TEXT = (
    "A reply with **some** Markdown, `code`, and a list:\n\n- one\n- two\n\n"
    "```python\nprint('hello')\n```\n\nAnd the end of it. "
)

FRAMES = """async seconds => {
  const region = document.querySelector('[aria-label="Conversation"]');
  const times = [];
  const end = performance.now() + 1000 * seconds;
  let down = false;
  while (performance.now() < end) {
    await new Promise(requestAnimationFrame);
    times.push(performance.now());
    if (region.scrollTop <= 0) down = true;
    if (region.scrollTop + region.clientHeight >= region.scrollHeight - 1) down = false;
    region.scrollBy(0, down ? 120 : -120);
  }
  return times.slice(1).map((time, index) => time - times[index]);
}"""

KEYS = """() => {
  window.keys = [];
  const field = document.querySelector('textarea[aria-label="Message"]');
  field.addEventListener('keydown', event => {
    const pressed = event.timeStamp;
    requestAnimationFrame(() => setTimeout(() => window.keys.push(performance.now() - pressed)));
  });
}"""


def long_conversation() -> Conversations:
    kept = Conversations("sqlite://")
    kept.create("long", "A long conversation")
    parent = None
    for number in range(MESSAGES):
        role = "assistant" if number % 2 else "user"
        content = TEXT * 2 if number % 2 else f"Question {number // 2}?"
        kept.keep("long", Message(f"m{number}", parent, role, content))
        parent = f"m{number}"
    return kept


def measure(browser: Browser, engine: Engine) -> dict[str, Any]:
    with servers.running(lambda: engine, conversations=long_conversation()) as it:
        servers.wait_until_loaded(it)
        tab = browser.new_page(viewport={"width": 1100, "height": 760})
        page = ChatPage(tab, it.url).open().prefer(sampling={"temperature": 0})
        began = time.perf_counter()
        tab.goto(f"{it.url}/#/c/long")
        tab.get_by_text(f"Question {MESSAGES // 2 - 1}?").wait_for()
        opened = time.perf_counter() - began
        idle = tab.evaluate(FRAMES, 3)
        # A short branch of its own, or the prompt would be all 2,000 messages.
        tab.evaluate(KEYS)
        page.field.press_sequentially("What would you say to a friend who", delay=120)
        keys = tab.evaluate("window.keys")
        tab.get_by_role("button", name="New conversation").first.click()
        page.send("Write a long story about a river.")
        tab.locator("article[aria-busy=true]").wait_for()
        streaming = tab.evaluate(FRAMES, 3)
        tab.evaluate(KEYS)
        page.field.press_sequentially("And then, at the end of it", delay=120)
        keys_streaming = tab.evaluate("window.keys")
    return {
        "messages": MESSAGES,
        "seconds_to_open": round(opened, 2),
        "frames_per_second_scrolling": round(1e3 / statistics.fmean(idle), 1),
        "slowest_frame_ms": round(max(idle), 1),
        "frames_per_second_streaming": round(1e3 / statistics.fmean(streaming), 1),
        "key_to_frame_ms_composing": round(statistics.median(keys), 1),
        "key_to_frame_ms_streaming": round(statistics.median(keys_streaming), 1),
    }


def draw(browser: Browser, engine: Engine, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with servers.running(lambda: engine, conversations=Conversations("sqlite://")) as it:
        servers.wait_until_loaded(it)
        for scheme, width, height in (("light", 1100, 760), ("dark", 390, 760)):
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = ChatPage(context.new_page(), it.url).open()
            page.prefer(sampling={"temperature": 0, "max_tokens": 200}, showsPages=True)

            def shoot(name: str, page: ChatPage = page, scheme: str = scheme) -> None:
                page.tab.screenshot(path=folder / f"{name}-{scheme}.png")

            shoot("welcome")
            page.write("What is the capital of France?")
            page.tab.locator("[data-readiness]").wait_for()
            shoot("draft")
            page.field.press("Enter")
            page.reply.get_by_text("tok/s").wait_for()
            page.ask("Write a Python function that adds two numbers.")
            page.button("Regenerate").last.click()
            page.reply.get_by_text("2/2").wait_for()
            page.wait_until_over()
            shoot("conversation")
            page.button("Conversation settings").click()
            shoot("settings")
            context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screens", type=Path, metavar="FOLDER", help="draw each screen there")
    options = parser.parse_args()
    engine = Engine.load(MODEL)
    engine.prefix_cache.capacity = 1 << 28
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        if options.screens:
            draw(browser, engine, options.screens)
        else:
            print(json.dumps(measure(browser, engine), indent=2))


if __name__ == "__main__":
    main()
