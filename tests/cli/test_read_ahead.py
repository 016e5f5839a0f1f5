"""Drafts that are processed while they are typed."""

from __future__ import annotations

import threading

import pytest

import engines
from inferno.cli.conversation import Conversation
from inferno.cli.read_ahead import ReadAhead
from inferno.errors import InvalidText

PATIENCE = 60.0


class FakeGeneration:
    """Takes until it is cancelled, or `finish` is called."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.was_cancelled = False

    def cancel(self) -> None:
        self.was_cancelled = True
        self.is_over.set()

    @property
    def text(self) -> str:
        assert self.is_over.wait(PATIENCE)
        return ""


class Reader:
    """Begins generations, and says when it has."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, FakeGeneration]] = []
        self._condition = threading.Condition()

    def __call__(self, draft: str) -> FakeGeneration:
        with self._condition:
            self.begun.append((draft, FakeGeneration()))
            self._condition.notify_all()
        return self.begun[-1][1]

    def wait_for(self, count: int) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.begun) >= count, PATIENCE)


def test_a_newer_draft_takes_the_place_of_the_one_that_is_read() -> None:
    reader = Reader()
    ahead = ReadAhead(reader, pause=0)
    ahead.offer("one")
    reader.wait_for(1)
    ahead.offer("one two")
    reader.wait_for(2)
    assert [draft for draft, _ in reader.begun] == ["one", "one two"]
    assert reader.begun[0][1].was_cancelled
    ahead.stop()


def test_letters_of_a_word_begin_nothing_until_the_keys_rest() -> None:
    reader = Reader()
    ahead = ReadAhead(reader, pause=0.05)
    for draft in ("h", "he", "hel", "hell", "hello"):
        ahead.offer(draft)
    reader.wait_for(1)
    ahead.stop()
    assert reader.begun[-1][0] == "hello"


def test_after_stopping_nothing_runs() -> None:
    reader = Reader()
    ahead = ReadAhead(reader, pause=0)
    ahead.offer("draft")
    reader.wait_for(1)
    ahead.stop()
    assert reader.begun[0][1].is_over.is_set()
    ahead.stop()  # twice is once
    ahead.offer("another")
    reader.wait_for(2)
    ahead.stop()


def test_closing_ends_the_thread_in_the_middle_of_a_draft_too() -> None:
    reader = Reader()
    ahead = ReadAhead(reader, pause=0)
    ahead.close()  # before there is one
    ahead = ReadAhead(reader, pause=0)
    before = set(threading.enumerate())
    ahead.offer("draft")
    reader.wait_for(1)
    ahead.close()
    assert set(threading.enumerate()) <= before


def test_a_draft_that_cannot_be_read_is_nobodys_business_yet() -> None:
    begun = threading.Event()

    def begin(draft: str) -> None:
        begun.set()
        raise InvalidText("half a character")

    ahead = ReadAhead(begin, pause=0)
    ahead.offer("x")
    assert begun.wait(PATIENCE)
    ahead.stop()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("read-ahead") / "tiny.gguf"
    engine = engines.load(engines.tiny_gguf(path, format="q4_0", context=1024))
    engine.prefix_cache.capacity = 1 << 28
    return engine


def test_what_was_typed_needs_no_processing_and_changes_no_reply(engine) -> None:
    said = "The river ran over the stones and under the bridge, as it had done all night."
    sampling = {"temperature": 0.0, "max_tokens": 8}
    cold = Conversation(engine, sampling=sampling).reply_to(said)
    reply, prompt_tokens = cold.text, cold.stats.prompt_tokens
    engine.prefix_cache.clear()
    conversation = Conversation(engine, sampling=sampling)
    for draft in ("The rivver", "The river ran over", said):
        generation = conversation.read_ahead(draft)
        assert generation is not None
        assert generation.text == ""
    warm = conversation.reply_to(said)
    assert warm.text == reply
    assert warm.stats.cached_tokens > prompt_tokens - 20
    assert cold.stats.cached_tokens == 0
