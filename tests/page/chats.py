"""The chat page in a browser, as a reader uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

PATIENCE_MS = 30_000
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
GREEDY = {"temperature": 0, "max_tokens": 40}


class ChatPage:
    """A tab that shows the page."""

    def __init__(self, tab: Page, url: str) -> None:
        self.tab = tab
        self.url = url
        self.errors: list[str] = []
        tab.set_default_timeout(PATIENCE_MS)
        tab.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self) -> ChatPage:
        self.tab.goto(self.url)
        self.tab.get_by_label("Message", exact=True).wait_for()
        return self

    @property
    def field(self) -> Locator:
        return self.tab.get_by_label("Message", exact=True)

    @property
    def messages(self) -> Locator:
        return self.tab.locator("article")

    @property
    def reply(self) -> Locator:
        """The newest reply, when it is over."""
        return self.tab.locator("article[data-role=assistant][data-message]").last

    def button(self, label: str) -> Locator:
        return self.tab.get_by_role("button", name=label, exact=True)

    def entry(self, title: str) -> Locator:
        """The conversation in the list whose title contains `title`."""
        return self.tab.get_by_role("listitem").filter(has_text=title)

    def choose(self, title: str, *labels: str) -> None:
        """Press `labels` one after the other, the first in the menu of a conversation's."""
        self.entry(title).hover()
        self.entry(title).get_by_role("button", name="More about").click()
        self.tab.get_by_role("menuitem", name=labels[0]).click()
        for label in labels[1:]:
            self.entry(title).get_by_role("button", name=label, exact=True).click()

    def write(self, text: str) -> ChatPage:
        self.field.press_sequentially(text)
        return self

    def send(self, text: str = "") -> ChatPage:
        self.write(text)
        self.field.press("Enter")
        return self

    def wait_until_over(self) -> ChatPage:
        self.button("Send").wait_for()
        return self

    def ask(self, text: str) -> str:
        """Send `text`, and return the whole reply."""
        before = self.messages.count()
        self.send(text)
        expect(self.messages).to_have_count(before + 2)
        self.wait_until_over()
        return self.said()[-1]

    def said(self) -> list[str]:
        """What stands in each message, without the buttons below."""
        texts = self.messages.evaluate_all(
            """articles => articles.map(article => {
                const copy = article.cloneNode(true);
                const extras = copy.querySelectorAll('h2.visually-hidden, footer');
                for (const extra of extras) extra.remove();
                return copy.textContent;
            })"""
        )
        return [str(text) for text in texts]

    def prefer(self, **preferences: Any) -> ChatPage:
        """Set what the reader's settings would set, and load the page anew."""
        self.tab.evaluate(
            "chosen => localStorage.setItem('inferno.preferences', JSON.stringify(chosen))",
            preferences,
        )
        self.tab.reload()
        self.field.wait_for()
        return self

    def serious_findings(self) -> list[str]:
        """What axe finds that keeps somebody from using the screen as it is."""
        self.tab.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{finding['id']}: {node['html'][:200]}"
            for finding in found["violations"]
            if finding["impact"] in ("serious", "critical")
            for node in finding["nodes"]
        ]


@contextmanager
def chat_page(browser: Browser, url: str, **context: Any) -> Iterator[ChatPage]:
    """Open the page in a profile of its own; greedy and short, so that replies are known."""
    profile: BrowserContext = browser.new_context(**context)
    try:
        page = ChatPage(profile.new_page(), url).open()
        yield page.prefer(sampling=GREEDY)
        assert not page.errors
    finally:
        profile.close()
