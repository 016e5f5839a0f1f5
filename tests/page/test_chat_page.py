"""The chat page in a real browser, against a real server with the default model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import servers
from inferno import Engine
from inferno.server.conversations import Conversations
from page.chats import GREEDY, chat_page

pytestmark = pytest.mark.real_model

QUESTION = "What is the capital of France?"
LONG = "Write a long story about a river."


def greedy(engine: Engine, *texts: str) -> str:
    """What the model answers to `texts`, which users and replies have said in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return engine.chat(messages, **GREEDY).text


def test_a_message_is_answered_with_the_text_that_python_gets(
    browser: Browser, server: servers.Running, engine: Engine
) -> None:
    with chat_page(browser, server.url) as page:
        answer = page.ask(QUESTION)
        assert answer.split() == greedy(engine, QUESTION).split()
        expect(page.reply).to_contain_text("tok/s")


def test_a_reply_comes_piece_by_piece_and_can_be_stopped(
    browser: Browser, server: servers.Running
) -> None:
    with chat_page(browser, server.url) as page:
        page.prefer(sampling={"temperature": 0}).send(LONG)
        live = page.tab.locator("article[aria-busy=true]")
        expect(live).to_contain_text("river")
        early = live.inner_text()
        page.field.press("Escape")
        page.wait_until_over()
        expect(page.reply).to_contain_text("Stopped.")
        assert page.said()[-1].startswith(" ".join(early.removeprefix("Model").split()[:2]))
        page.button("Continue").click()
        page.button("Stop").click()
        page.wait_until_over()


def test_an_edited_message_is_a_branch_and_the_other_is_still_there(
    browser: Browser, server: servers.Running
) -> None:
    with chat_page(browser, server.url) as page:
        first = page.ask(QUESTION)
        page.button("Edit message").click()
        page.tab.get_by_role("textbox", name="Edit message").fill("What is the capital of Italy?")
        page.button("Send as a new branch").click()
        expect(page.messages.first).to_contain_text("2/2")
        page.wait_until_over()
        assert "Italy" in page.said()[0]
        page.button("Previous branch").click()
        assert page.said() == [QUESTION, first]


def test_a_regenerated_reply_is_a_branch(browser: Browser, server: servers.Running) -> None:
    with chat_page(browser, server.url) as page:
        first = page.ask(QUESTION)
        page.button("Regenerate").click()
        expect(page.reply).to_contain_text("2/2")
        page.wait_until_over()
        assert page.said()[-1] == first, "greedy"


def test_conversations_and_drafts_survive_a_reload(
    browser: Browser, server: servers.Running
) -> None:
    with chat_page(browser, server.url) as page:
        answer = page.ask(QUESTION)
        page.write("And of It")
        page.tab.reload()
        expect(page.messages).to_have_count(2)
        assert page.said() == [QUESTION, answer]
        expect(page.field).to_have_value("And of It")


def test_conversations_are_listed_renamed_pinned_found_and_deleted(
    browser: Browser, server: servers.Running
) -> None:
    with chat_page(browser, server.url) as page:
        page.ask("A question about zebras?")
        page.choose("zebras", "Rename")
        page.tab.get_by_label("Title").fill("Striped animals")
        page.tab.get_by_label("Title").press("Enter")
        page.choose("Striped animals", "Pin")
        expect(page.tab.get_by_role("heading", name="Pinned")).to_be_visible()
        page.tab.keyboard.press("Control+k")
        page.tab.keyboard.type("zebras")  # in a message
        expect(page.entry("Striped")).to_be_visible()
        page.tab.get_by_label("Search conversations").fill("no such thing")
        expect(page.tab.get_by_text("Nothing found.")).to_be_visible()
        page.tab.get_by_label("Search conversations").fill("")
        page.choose("Striped animals", "Delete", "Delete")
        expect(page.entry("Striped")).to_have_count(0)
        expect(page.messages).to_have_count(0)


def test_what_one_tab_says_another_shows(browser: Browser, server: servers.Running) -> None:
    with chat_page(browser, server.url) as page:
        page.ask(QUESTION)
        other = page.tab.context.new_page()
        other.goto(page.tab.url)
        expect(other.locator("article")).to_have_count(2)
        page.ask("And of Italy?")
        expect(other.locator("article")).to_have_count(4)


def test_a_typo_that_was_read_ahead_changes_no_answer(
    browser: Browser, server: servers.Running, engine: Engine
) -> None:
    with chat_page(browser, server.url) as page:
        page.write("What is the capitol of Frence")
        ready = page.tab.locator("[data-readiness]")
        expect(ready).to_be_visible()
        for _ in "capitol of Frence":
            page.field.press("Backspace")
        expect(ready).to_be_visible()
        answer = page.ask("capital of France?")
        assert answer.split() == greedy(engine, QUESTION).split()
        page.reply.get_by_text("tok/s").click()
        expect(page.reply).not_to_contain_text("Read while you typed0 tokens")


def test_reading_ahead_can_be_switched_off(browser: Browser, server: servers.Running) -> None:
    with chat_page(browser, server.url) as page:
        page.prefer(readsAhead=False, sampling=GREEDY)
        asked: list[str] = []
        page.tab.on("request", lambda request: asked.append(request.url))
        page.ask(QUESTION)
        assert not [url for url in asked if "compose" in url]


def test_a_server_that_restarts_in_mid_reply_loses_nothing_that_came(
    browser: Browser, engine: Engine, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/conversations.db"
    with servers.running(lambda: engine, conversations=Conversations(url)) as first:
        servers.wait_until_loaded(first)
        port = int(first.url.rsplit(":", 1)[1])
        with chat_page(browser, first.url) as page:
            page.prefer(sampling={"temperature": 0}).send(LONG)
            expect(page.tab.locator("article[aria-busy=true]")).to_contain_text("river")
            first.server.stop()
            expect(page.tab.get_by_role("alert")).to_contain_text("cannot be reached")
            expect(page.reply).to_contain_text("cut off")
            kept = page.said()[-1]
            page.write("Unsent")
            again = Conversations(url)
            with servers.running(lambda: engine, port=port, conversations=again) as second:
                servers.wait_until_loaded(second)
                page.button("Try now").click()
                expect(page.tab.get_by_role("alert")).to_have_count(0)
                expect(page.field).to_have_value("Unsent")
                assert page.said()[-1] == kept


def test_a_tab_that_is_closed_in_mid_reply_loses_nothing_that_came(
    browser: Browser, server: servers.Running, engine: Engine
) -> None:
    with chat_page(browser, server.url) as page:
        page.prefer(sampling={"temperature": 0}).send(LONG)
        live = page.tab.locator("article[aria-busy=true]")
        expect(live).to_contain_text("river")
        early = page.said()[-1]
        address = page.tab.url
        profile = page.tab.context
        page.tab.close()
        while server.service.scheduler.num_running:  # hanging up stops the reply
            pass
        page.tab = profile.new_page()
        page.tab.goto(address)
        expect(page.messages).to_have_count(2)
        expect(page.reply).to_contain_text("Stopped.")
        found = page.said()[-1].removesuffix("Stopped.")
        assert found.startswith(early)
        page.prefer(sampling=GREEDY)
        page.button("Continue").click()
        page.wait_until_over()
        assert page.said()[-1].startswith(found)
        assert len(page.said()[-1]) > len(found)


def test_an_answer_can_be_held_to_a_schema(browser: Browser, server: servers.Running) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    with chat_page(browser, server.url) as page:
        page.prefer(sampling={"temperature": 0}, schema=json.dumps(schema))
        page.ask(QUESTION)
        assert "city" in json.loads(page.reply.locator("pre").inner_text())


def test_a_key_is_asked_for_once(browser: Browser, engine: Engine) -> None:
    from inferno.server.guard import Access

    with servers.running(lambda: engine, access=Access(keys=["secret"])) as it:
        servers.wait_until_loaded(it)
        profile = browser.new_context()
        tab = profile.new_page()
        tab.goto(it.url)
        tab.get_by_label("API key").fill("guessed")
        tab.get_by_role("button", name="Go on").click()
        expect(tab.get_by_role("alert")).to_contain_text("does not accept that key")
        tab.get_by_label("API key").fill("secret")
        tab.get_by_role("button", name="Go on").click()
        model = tab.get_by_role("heading", name="smollm2")
        expect(model).to_be_visible()
        tab.reload()
        expect(model).to_be_visible()
        expect(tab.get_by_label("API key")).to_have_count(0)
        profile.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 390])
def test_no_screen_keeps_anybody_out(
    browser: Browser, server: servers.Running, scheme: str, width: int
) -> None:
    viewport = {"width": width, "height": 760}
    with chat_page(browser, server.url, viewport=viewport, color_scheme=scheme) as page:
        page.prefer(sampling=GREEDY, sidebarIsOpen=width > 768, showsPages=True)
        assert page.serious_findings() == []
        page.ask("Write a table of two rows, and a Python function.")
        assert page.serious_findings() == []
        page.button("Conversation settings").click()
        assert page.serious_findings() == []
        page.tab.keyboard.press("Escape")
        page.tab.keyboard.press("Control+/")
        assert page.serious_findings() == []
        page.tab.keyboard.press("Escape")
        if width < 768:
            page.button("Show conversations").click()
            assert page.serious_findings() == []


def test_conversations_can_be_exported_and_imported(
    browser: Browser, server: servers.Running, tmp_path: Path
) -> None:
    with chat_page(browser, server.url) as page:
        page.ask("A question about walruses?")
        with page.tab.expect_download() as download:
            page.button("Export conversations").click()
        path = tmp_path / "conversations.json"
        download.value.save_as(path)
        page.choose("walruses", "Delete", "Delete")
        expect(page.entry("walruses")).to_have_count(0)
        page.tab.get_by_label("File of conversations").set_input_files(path)
        expect(page.entry("walruses").first).to_be_visible()


# ---- where there is little room, or much of something ----

PHONE = {"viewport": {"width": 390, "height": 760}, "has_touch": True, "is_mobile": True}
WIDE = (
    "| a rather long heading | another one | and a third |\n|---|---|---|\n"
    + "| something | something else | and more of the same |\n\n"
    + f"```python\nprint({'x' * 200!r})\n```\n\n$$x^2 + y^2$$\n\n"
    + "Donaudampfschiff" * 20
)


def keep(server: servers.Running, id: str, question: str, answer: str) -> None:
    """Have the server keep a conversation that nobody has to write first."""
    server.post("/app/conversations", {"id": id, "title": question})
    said = [("user", question, None), ("assistant", answer, "0")]
    for number, (role, content, parent) in enumerate(said):
        body = {"id": str(number), "parent": parent, "role": role, "content": content}
        server.post(f"/app/conversations/{id}/messages", body)


def test_the_message_field_stays_in_sight_however_long_the_list_is(
    browser: Browser, engine: Engine
) -> None:
    kept = Conversations("sqlite://")
    for number in range(100):
        kept.create(f"c{number}", f"Conversation {number}")
    with servers.running(lambda: engine, conversations=kept) as it:
        servers.wait_until_loaded(it)
        viewport = {"width": 1100, "height": 600}
        with chat_page(browser, it.url, viewport=viewport) as page:
            expect(page.entry("Conversation 99")).to_be_visible()
            expect(page.field).to_be_in_viewport(ratio=1)
            expect(page.button("Settings")).to_be_in_viewport(ratio=1)
            page.tab.goto(f"{it.url}/#/c/c0")  # the last in the list
            expect(page.tab.locator("li [aria-current=page]")).to_be_in_viewport()


def test_nothing_is_wider_than_a_phone_nor_smaller_than_a_finger(
    browser: Browser, server: servers.Running
) -> None:
    keep(server, "wide", "Something wide?", WIDE)
    with chat_page(browser, server.url, **PHONE) as page:
        page.tab.goto(f"{server.url}/#/c/wide")
        expect(page.tab.locator("math")).to_be_visible()
        assert page.tab.evaluate("document.documentElement.scrollWidth") == 390
        for place in ("main", "nav", "dialog"):
            if place == "nav":
                page.button("Show conversations").click()
            if place == "dialog":
                page.tab.keyboard.press("Escape")
                page.button("Conversation settings").click()
            expect(page.tab.locator(place)).to_be_visible()
            small = page.tab.locator(place).evaluate(
                """place => [...place.querySelectorAll('button, summary, select, input')]
                    .filter(element => element.checkVisibility() && element.type !== 'checkbox')
                    .filter(element => {
                        const {width, height} = element.getBoundingClientRect();
                        return width < 44 || height < 44;
                    })
                    .map(element => element.outerHTML.slice(0, 100))"""
            )
            assert small == []


def test_on_a_phone_the_list_lies_over_the_conversation_when_asked(
    browser: Browser, server: servers.Running
) -> None:
    keep(server, "phone", "On a phone?", "Yes.")
    with chat_page(browser, server.url, **PHONE) as page:
        expect(page.tab.get_by_role("navigation")).to_have_count(0)
        page.button("Show conversations").click()
        page.entry("On a phone?").get_by_role("button").first.click()
        expect(page.tab.get_by_role("navigation")).to_have_count(0)
        expect(page.messages).to_have_count(2)


def test_a_page_from_another_machine_works_without_what_browsers_keep_from_it(
    browser: Browser, engine: Engine
) -> None:
    from inferno.server.guard import Access

    access = Access(hosts=["another.test"])
    with servers.running(lambda: engine, access=access) as it:
        servers.wait_until_loaded(it)
        with chat_page(browser, it.url.replace("127.0.0.1", "another.test")) as page:
            assert not page.tab.evaluate("isSecureContext")
            assert page.ask(QUESTION)
            page.button("Copy message").last.click()
            expect(page.button("Copied")).to_be_visible()
            # This server keeps none, which is no failure.
            expect(page.tab.get_by_role("alert")).to_have_count(0)


def test_a_conversation_deleted_while_its_reply_comes_is_gone_for_good(
    browser: Browser, server: servers.Running
) -> None:
    with chat_page(browser, server.url) as page:
        page.prefer(sampling={"temperature": 0}).send("A long story about an otter.")
        expect(page.tab.locator("article[aria-busy=true]")).to_be_visible()
        page.choose("otter", "Delete", "Delete")
        expect(page.messages).to_have_count(0)
        page.prefer(sampling=GREEDY).ask(QUESTION)
        assert page.tab.url.split("/c/")[1], "the new conversation has an address of its own"
        page.tab.reload()
        expect(page.messages).to_have_count(2)
        expect(page.entry("otter")).to_have_count(0)
        expect(page.tab.get_by_role("alert")).to_have_count(0)


def test_the_back_button_goes_to_the_conversation_before_whose_reply_still_comes(
    browser: Browser, server: servers.Running
) -> None:
    with chat_page(browser, server.url) as page:
        page.prefer(sampling={"temperature": 0}).send(LONG)
        live = page.tab.locator("article[aria-busy=true]")
        expect(live).to_contain_text("river")
        page.button("New conversation").click()
        expect(page.messages).to_have_count(0)
        page.tab.go_back()
        expect(live).to_contain_text("river")
        page.button("Stop").click()
        page.wait_until_over()


def test_a_menu_and_a_dialog_are_used_by_the_keyboard_and_give_the_focus_back(
    browser: Browser, server: servers.Running
) -> None:
    keep(server, "keys", "By the keyboard?", "Yes.")
    with chat_page(browser, server.url) as page:
        more = page.entry("By the keyboard?").get_by_role("button", name="More about")
        more.focus()
        page.tab.keyboard.press("Enter")
        expect(page.tab.get_by_role("menuitem", name="Pin")).to_be_focused()
        page.tab.keyboard.press("ArrowDown")
        expect(page.tab.get_by_role("menuitem", name="Rename")).to_be_focused()
        page.tab.keyboard.press("Escape")
        expect(more).to_be_focused()
        settings = page.button("Conversation settings")
        settings.focus()
        page.tab.keyboard.press("Enter")
        expect(page.tab.get_by_role("dialog")).to_be_visible()
        page.tab.keyboard.press("Escape")
        expect(settings).to_be_focused()
