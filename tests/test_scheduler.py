"""Many texts at once: each is what it would be alone, and nobody waits for what is not theirs."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import engines
from inferno import Busy, Engine, Generation, InfernoError, OutOfMemory
from inferno.scheduler import FEWEST_ROWS, Priority, Scheduler, Stream, Update
from inferno.speculation import NgramIndex

PATIENCE = 60.0  # seconds until a test that hangs fails
GREEDY = {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scheduler") / "model.gguf"
    return engines.tiny_gguf(path, format="q4_0", context=1024)


@pytest.fixture(scope="module")
def alone(model: Path) -> Engine:
    """An engine that runs one text at a time and keeps nothing."""
    return engines.load(model)


@pytest.fixture
def engine(model: Path) -> Engine:
    engine = engines.load(model, threads=2)
    engine.prefix_cache.capacity = 1 << 30
    return engine


@pytest.fixture
def scheduler(engine: Engine) -> Iterator[Scheduler]:
    scheduler = Scheduler(engine)
    yield scheduler
    scheduler.close()


class Listener:
    """Hears of a stream, and does something when it does."""

    def __init__(self, then: Callable[[Update], object] = lambda update: None) -> None:
        self.updates: list[Update] = []
        self._over = threading.Event()
        self._then = then

    def __call__(self, update: Update) -> None:
        self.updates.append(update)
        self._then(update)
        if update.is_over:
            self._over.set()

    def wait(self) -> list[Update]:
        assert self._over.wait(PATIENCE), "the stream never ended"
        return self.updates

    @property
    def text(self) -> str:
        return "".join(update.text for update in self.wait())

    @property
    def error(self) -> InfernoError | None:
        return self.wait()[-1].error


def watch(engine: Engine, before: Callable[[int, list[Any]], object]) -> list[list[int]]:
    """Call `before(n, batch)` before the nth pass; return a list of each pass's rows, as they come.

    A row is how many ids a sequence has in the pass.
    """
    passes: list[list[int]] = []
    forward = engine._forward

    def watched(batch: list[Any]) -> Any:
        passes.append([len(ids) for _, ids, _ in batch])
        before(len(passes) - 1, batch)
        return forward(batch)

    engine._forward = watched  # type: ignore[method-assign]
    return passes


def submit_together(
    scheduler: Scheduler, generations: list[Generation], **options: Any
) -> list[Listener]:
    """Submit before any of them can begin."""
    listeners = [Listener() for _ in generations]
    with scheduler._condition:
        for generation, listener in zip(generations, listeners, strict=True):
            scheduler.submit(generation, listener, **options)
    return listeners


def everything(generation: Generation) -> tuple[Any, ...]:
    return (
        generation.tokens,
        generation.finish_reason,
        generation.logprobs,
        generation.stats.prompt_tokens,
    )


REQUESTS: list[dict[str, Any]] = [
    {**GREEDY},
    {**GREEDY, "max_tokens": 1},
    {**GREEDY, "max_tokens": 0},
    {"temperature": 1.0, "seed": 3, "max_tokens": 30, "logprobs": 3},
    {"temperature": 2.0, "seed": 4, "max_tokens": 40, "top_k": 0, "ignore_eos": True},
    {"temperature": 1.0, "seed": 5, "max_tokens": 25, "repetition_penalty": 1.3, "logprobs": 1},
    {"temperature": 0.7, "seed": 6, "max_tokens": 25, "dry_multiplier": 0.8, "choice": 2},
    {**GREEDY, "speculation": 4, "prediction": "the of and the of"},
    {"temperature": 1.0, "seed": 8, "max_tokens": 60, "stop": ("e", "a t")},
]
LENGTHS = (1, 2, 63, 64, 65, 100, 200, 5, 300)


def requests(engine: Engine) -> list[Generation]:
    return [
        engine.generate(engines.random_ids(length, seed=length), **params)
        for length, params in zip(LENGTHS, REQUESTS, strict=True)
    ]


# ---- the same bytes ------------------------------------------------------------------------------


def test_texts_written_together_are_what_they_are_alone(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    expected = requests(alone)
    found = requests(engine)
    listeners = submit_together(scheduler, found)
    for ours, theirs, listener in zip(found, expected, listeners, strict=True):
        assert listener.text == theirs.text
        assert everything(ours) == everything(theirs)


def test_texts_that_come_and_go_at_any_time_are_what_they_are_alone(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    """A third is cancelled somewhere; what they said until then is the beginning of their text."""
    choices = random.Random(2)
    expected = [generation.text for generation in requests(alone)]
    going: list[tuple[Stream, Listener, str, bool]] = []
    for round in range(6):
        for generation, text in zip(requests(engine), expected, strict=True):
            is_cancelled, after = choices.random() < 0.34, choices.randrange(6)
            seen, stream = [0], [None]

            def then(
                update: Update, seen: Any = seen, stream: Any = stream, n: int = after
            ) -> None:
                seen[0] += 1
                if seen[0] == n and stream[0] is not None:
                    scheduler.cancel(stream[0])

            listener = Listener(then if is_cancelled else lambda update: None)
            stream[0] = scheduler.submit(generation, listener)
            going.append((stream[0], listener, text, is_cancelled))
            if is_cancelled and after == 0:
                scheduler.cancel(stream[0])
        going[9 * round][1].wait()  # the others may be anywhere
    for _, listener, text, is_cancelled in going:
        said = listener.text.removesuffix("\ufffd")  # half a character that was never finished
        assert listener.text == text or (is_cancelled and text.startswith(said))
        assert listener.error is None
    assert scheduler.totals.requests == 54
    assert scheduler.num_running == scheduler.num_waiting == 0
    assert engine._loaded.pages.pages_in_use == engine.prefix_cache.num_pages


@pytest.mark.parametrize("form", [{}, {"regex": "([a-z]{3,9},){300}"}], ids=["free", "constrained"])
def test_texts_that_outgrow_the_memory_take_turns_and_say_the_same(
    engine: Engine, alone: Engine, form: dict[str, Any]
) -> None:
    engine.prefix_cache.capacity = 7 * engine._loaded.pages.page_bytes
    scheduler = Scheduler(engine)
    params = {**GREEDY, "max_tokens": 150, **form}
    prompts = [engines.random_ids(60, seed=n) for n in range(4)]
    expected = [alone.generate(prompt, **params).text for prompt in prompts]
    pages = watch(engine, lambda n, batch: None)
    listeners = submit_together(
        scheduler, [engine.generate(prompt, **params) for prompt in prompts]
    )
    assert [listener.text for listener in listeners] == expected
    assert scheduler.totals.preempted > 0
    assert engine._loaded.pages.pages_in_use <= 7
    assert max(map(len, pages)) > 1  # together as long as they fit
    scheduler.close()


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "is": {"enum": ["much", "more"]}},
    "required": ["name", "is"],
    "additionalProperties": False,
}
HOT = {"temperature": 1.5, "seed": 9, "max_tokens": 60, "logprobs": 1}
CONSTRAINTS: list[dict[str, Any]] = [
    {"json_schema": SCHEMA, **HOT},
    {"json_schema": SCHEMA, **HOT, "choice": 1},
    {"json_schema": SCHEMA, **HOT, "speculation": 5},
    {"regex": "(one|two|three){2,9}", **HOT, "ignore_eos": True},
    {"grammar": 'root ::= "(" root ")" | [0-9]+', **HOT},
    {"regex": "a certain text, whatever the model", **HOT, "temperature": 0.0},
]


def constrained(engine: Engine) -> list[Generation]:
    return [
        engine.generate(engines.random_ids(5 + n, seed=n), **p) for n, p in enumerate(CONSTRAINTS)
    ]


def test_constrained_texts_among_others_are_what_they_are_alone(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    expected = [*constrained(alone), *requests(alone)]
    found = [*constrained(engine), *requests(engine)]
    listeners = submit_together(scheduler, found)
    for ours, theirs, listener in zip(found, expected, listeners, strict=True):
        assert listener.error is None
        assert listener.text == theirs.text
        assert everything(ours) == everything(theirs)


def test_constrained_choices_of_one_request_share_its_prompt_and_no_state(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    prompt, params = engines.random_ids(300), {"json_schema": SCHEMA, **HOT, "max_tokens": 40}
    generations = [engine.generate(prompt, **{**params, "choice": n}) for n in range(4)]
    texts = [listener.text for listener in submit_together(scheduler, generations)]
    assert texts == [alone.generate(prompt, **{**params, "choice": n}).text for n in range(4)]
    assert len(set(texts)) == 4
    assert [g.stats.cached_tokens for g in generations] == [0, 299, 299, 299]


def test_a_constrained_text_that_is_cancelled_leaves_nothing_and_no_other_notices(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    """Wherever it is: in its prompt, before a token, with masks under way."""
    expected = [generation.text for generation in constrained(alone)]
    for after in range(8):
        streams: list[Stream] = []
        listeners = [Listener() for _ in expected]
        made = constrained(engine)

        def then(update: Update, seen: list[int] = [after], streams: Any = streams) -> None:  # noqa: B006
            seen[0] -= 1
            if seen[0] <= 0:
                scheduler.cancel(streams[0])

        listeners[0] = Listener(then)
        with scheduler._condition:
            streams += scheduler.submit_all(list(zip(made, listeners, strict=True)))
        texts = [listener.text for listener in listeners]
        assert texts[1:] == expected[1:]
        assert expected[0].startswith(texts[0])
        assert not any(listener.error for listener in listeners)
    assert engine._loaded.pages.pages_in_use == engine.prefix_cache.num_pages


def test_a_constraint_that_leads_nowhere_ends_its_text_alone(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    ban = tuple(engine.tokenizer.ids_containing("b"))
    stuck = engine.generate([1], regex="aab", suppress_tokens=ban, temperature=0.0)
    sound = engine.generate([2], **GREEDY)
    listeners = submit_together(scheduler, [stuck, sound])
    assert "every token that the constraint allows" in str(listeners[0].error)
    assert listeners[1].text == alone.generate([2], **GREEDY).text


def test_constraints_and_their_thread_go_with_the_engine(model: Path) -> None:
    engine, others = engines.load(model), set(threading.enumerate())
    scheduler = Scheduler(engine)
    for listener in submit_together(scheduler, constrained(engine)):
        listener.wait()
    [worker] = {*threading.enumerate()} - {*others, scheduler._thread, scheduler._memory}
    scheduler.close()
    constraints = weakref.ref(engine._constraints)
    del engine, scheduler, listener
    gc.collect()
    assert constraints() is None
    worker.join(PATIENCE)
    assert not worker.is_alive()


# ---- one pass for all ----------------------------------------------------------------------------


def test_eight_texts_are_written_by_the_passes_of_one(scheduler: Scheduler, engine: Engine) -> None:
    passes = watch(engine, lambda n, batch: None)
    generations = [engine.generate([7, n], **GREEDY) for n in range(8)]
    for listener in submit_together(scheduler, generations):
        listener.wait()
    assert [1] * 8 in passes
    assert len(passes) <= 8 + 20


def test_a_text_goes_on_in_every_pass_that_reads_a_long_prompt(
    scheduler: Scheduler, engine: Engine
) -> None:
    passes = watch(engine, lambda n, batch: None)
    short = engine.generate([7], **{**GREEDY, "max_tokens": 200, "speculation": "off"})
    long = engine.generate(engines.random_ids(900), **GREEDY)
    for listener in submit_together(scheduler, [short, long]):
        listener.wait()
    reading = [rows for rows in passes if max(rows) > 1]
    assert len(reading) >= 3
    assert all(rows[0] == 1 for rows in reading[1:]), passes


def test_a_short_prompt_does_not_wait_for_a_long_one(scheduler: Scheduler, engine: Engine) -> None:
    order: list[str] = []
    long = Listener(lambda update: order.append("long") if update.text else None)
    short = Listener(lambda update: order.append("short") if update.text else None)
    with scheduler._condition:
        scheduler.submit(engine.generate(engines.random_ids(1000), **GREEDY), long)
        scheduler.submit(engine.generate([1, 2, 3], **{**GREEDY, "ignore_eos": True}), short)
    long.wait()
    short.wait()
    assert order[0] == "short"


def test_choices_of_one_request_read_its_prompt_once(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    passes = watch(engine, lambda n, batch: None)
    prompt, params = engines.random_ids(500), {"temperature": 1.0, "seed": 1, "max_tokens": 5}
    generations = [engine.generate(prompt, choice=n, **params) for n in range(4)]
    listeners = submit_together(scheduler, generations)
    texts = [listener.text for listener in listeners]
    assert texts == [alone.generate(prompt, choice=n, **params).text for n in range(4)]
    assert len(set(texts)) > 1
    assert sum(map(sum, passes)) < 500 + 4 * 6
    assert [g.stats.cached_tokens for g in generations] == [0, 499, 499, 499]


def test_guesses_are_made_where_one_text_is_written_alone(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    prompt = engines.random_ids(9)
    tokens = alone.generate(prompt, **GREEDY).tokens
    params = {**GREEDY, "prediction": tokens, "speculation": 6}
    single = engine.generate(prompt, **params)
    submit_together(scheduler, [single])[0].wait()
    assert single.tokens == tokens
    assert single.stats.accepted > 10
    passes = watch(engine, lambda n, batch: None)
    both = [engine.generate(prompt, **params), engine.generate([5], **{**GREEDY, "max_tokens": 30})]
    for listener in submit_together(scheduler, both):
        listener.wait()
    assert both[0].tokens == tokens
    assert [1, 1] in passes
    assert both[0].stats.drafted < single.stats.drafted


def test_a_long_prediction_is_read_by_who_asks_and_not_between_passes(
    scheduler: Scheduler, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []
    fit = NgramIndex.fit

    def watched_fit(self: NgramIndex, length: int) -> None:
        if length > 1000:
            readers.append(threading.current_thread())
        fit(self, length)

    monkeypatch.setattr(NgramIndex, "fit", watched_fit)
    generation = engine.generate([1], prediction="as before " * 1000, **GREEDY)
    submit_together(scheduler, [generation])[0].wait()
    assert readers == [threading.current_thread()]


# ---- stopping ------------------------------------------------------------------------------------


def test_a_cancelled_text_ends_within_a_pass_and_no_other_does(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    streams: list[Stream] = []
    passes_after: list[int] = []

    def before(n: int, batch: list[Any]) -> None:
        if n == 6:
            scheduler.cancel(streams[1])
        if n > 6:
            passes_after.append(len(batch))

    watch(engine, before)
    generations = [engine.generate([n + 1], **{**GREEDY, "max_tokens": 40}) for n in range(3)]
    listeners = [Listener() for _ in generations]
    with scheduler._condition:
        streams += scheduler.submit_all(list(zip(generations, listeners, strict=True)))
    for listener in listeners:
        listener.wait()
    assert generations[1].finish_reason == "cancelled"
    assert set(passes_after) == {2}
    for n in (0, 2):
        assert listeners[n].text == alone.generate([n + 1], **{**GREEDY, "max_tokens": 40}).text


def test_a_prefill_that_was_cancelled_is_kept_as_far_as_it_went(
    scheduler: Scheduler, engine: Engine
) -> None:
    prompt = engines.random_ids(900)
    streams: list[Stream] = []
    passes = watch(engine, lambda n, batch: scheduler.cancel(streams[0]) if n == 2 else None)
    listener, cancelled = Listener(), engine.generate(prompt, **GREEDY)
    with scheduler._condition:
        streams.append(scheduler.submit(cancelled, listener))
    listener.wait()
    assert (cancelled.finish_reason, cancelled.text) == ("cancelled", "")
    done = sum(map(sum, passes))
    assert 0 < done < 900
    assert listener.updates[0].processed_tokens == passes[0][0]
    again = engine.generate(prompt, **GREEDY)
    submit_together(scheduler, [again])[0].wait()
    assert again.stats.cached_tokens == done


def test_a_request_that_waits_can_be_cancelled(engine: Engine) -> None:
    scheduler = Scheduler(engine, max_streams=1)
    first, second = Listener(), Listener()
    waiting = engine.generate([2], **GREEDY)
    with scheduler._condition:
        scheduler.submit(engine.generate([1], **GREEDY), first)
        scheduler.cancel(scheduler.submit(waiting, second))
    assert second.text == ""
    assert waiting.finish_reason == "cancelled"
    assert first.text
    scheduler.close()


def test_cancelling_what_is_over_does_nothing(scheduler: Scheduler, engine: Engine) -> None:
    listener = Listener()
    stream = scheduler.submit(engine.generate([1], **GREEDY), listener)
    listener.wait()
    scheduler.cancel(stream)
    assert submit_together(scheduler, [engine.generate([1], **GREEDY)])[0].text == listener.text
    assert len([update for update in listener.updates if update.is_over]) == 1


# ---- the queue -----------------------------------------------------------------------------------


def test_a_queue_that_is_full_refuses_all_or_nothing(engine: Engine) -> None:
    scheduler = Scheduler(engine, max_streams=2, max_waiting=3)
    listeners = [Listener() for _ in range(6)]
    made = [engine.generate([n + 1], **GREEDY) for n in range(6)]
    with scheduler._condition:
        scheduler.submit_all(list(zip(made[:4], listeners[:4], strict=True)))
        with pytest.raises(Busy, match="4 are waiting, expected at most 3"):
            scheduler.submit_all(list(zip(made[4:], listeners[4:], strict=True)))
        scheduler.submit(made[4], listeners[4])
        with pytest.raises(Busy):
            scheduler.submit(made[5], listeners[5])
    assert all(listener.text for listener in listeners[:5])
    assert scheduler.totals.requests == 5
    scheduler.submit(made[5], listeners[5])
    assert listeners[5].text
    scheduler.close()


def test_interactive_goes_before_background_and_a_draft_comes_last(engine: Engine) -> None:
    scheduler = Scheduler(engine, max_streams=1)
    order: list[str] = []
    listeners = []
    with scheduler._condition:
        for name, priority in (
            ("draft", Priority.COMPOSE),
            ("background 1", Priority.BACKGROUND),
            ("interactive 1", Priority.INTERACTIVE),
            ("background 2", Priority.BACKGROUND),
            ("interactive 2", Priority.INTERACTIVE),
        ):
            listener = Listener(lambda update, name=name: update.is_over and order.append(name))
            scheduler.submit(engine.generate([len(name)], **GREEDY), listener, priority)
            listeners.append(listener)
    for listener in listeners:
        listener.wait()
    assert order == ["interactive 1", "interactive 2", "background 1", "background 2", "draft"]
    scheduler.close()


def test_a_draft_is_read_slowly_while_somebody_is_answered(
    scheduler: Scheduler, engine: Engine
) -> None:
    passes = watch(engine, lambda n, batch: None)
    reply = engine.generate([1], **{**GREEDY, "max_tokens": 60})
    draft = engine.generate(engines.random_ids(200), temperature=0.0, max_tokens=0)
    first, second = Listener(), Listener()
    with scheduler._condition:
        scheduler.submit(draft, second, Priority.COMPOSE)
        scheduler.submit(reply, first)
    second.wait()
    assert [1, FEWEST_ROWS] in passes
    assert all(rows[1] <= FEWEST_ROWS for rows in passes if len(rows) == 2)
    first.wait()


# ---- when something goes wrong -------------------------------------------------------------------


def test_a_pass_that_fails_ends_one_request_and_the_others_go_on(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    def before(n: int, batch: list[Any]) -> None:
        if n == 5:
            raise OutOfMemory("The KV cache could not grow")

    watch(engine, before)
    generations = [engine.generate([n + 1], **GREEDY) for n in range(3)]
    listeners = submit_together(scheduler, generations)
    assert isinstance(listeners[2].error, OutOfMemory)
    for n in (0, 1):
        assert listeners[n].error is None
        assert listeners[n].text == alone.generate([n + 1], **GREEDY).text
    with pytest.raises(OutOfMemory):
        _ = generations[2].text


def test_a_mistake_in_a_step_is_an_error_of_its_request(
    scheduler: Scheduler, engine: Engine
) -> None:
    broken, sound = (engine.generate([n], **GREEDY) for n in (1, 2))
    broken._step = lambda sampler: 1 // 0  # type: ignore[method-assign]
    listeners = submit_together(scheduler, [broken, sound])
    assert "ZeroDivisionError" in str(listeners[0].error)
    assert listeners[1].error is None


def test_a_listener_that_fails_loses_its_stream_alone(scheduler: Scheduler, engine: Engine) -> None:
    def fail(update: Update) -> None:
        raise RuntimeError("Event loop is closed")

    gone, there = Listener(fail), Listener()
    with scheduler._condition:
        lost = engine.generate([1], **{**GREEDY, "max_tokens": 900})
        scheduler.submit(lost, gone)
        scheduler.submit(engine.generate([2], **GREEDY), there)
    assert there.text
    scheduler.close()
    assert lost.finish_reason == "cancelled"
    assert len(gone.updates) <= 3


def test_a_generation_that_is_scheduled_cannot_be_read_beside_it(
    scheduler: Scheduler, engine: Engine
) -> None:
    caught: list[Exception] = []

    def read(update: Update) -> None:
        try:
            _ = generation.text
        except InfernoError as error:
            caught.append(error)

    generation = engine.generate([1], **GREEDY)
    listener = Listener(read)
    scheduler.submit(generation, listener)
    text = listener.text
    assert "run by a scheduler" in str(caught[0])
    assert generation.text == text  # when it is over it can


def test_closing_lets_texts_end_and_takes_no_more(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    listener, generation = Listener(), engine.generate([1], **GREEDY)
    scheduler.submit(generation, listener)
    scheduler.close(PATIENCE)
    assert generation.finish_reason == "length"
    with pytest.raises(Busy, match="closing"):
        scheduler.submit(engine.generate([1], **GREEDY), listener)
    assert not scheduler.is_healthy


def test_closing_without_patience_cancels_what_runs_and_what_waits(engine: Engine) -> None:
    scheduler = Scheduler(engine, max_streams=1)
    generations = [engine.generate([n + 1], **{**GREEDY, "max_tokens": 1000}) for n in range(3)]
    listeners = submit_together(scheduler, generations)
    scheduler.close()
    for listener, generation in zip(listeners, generations, strict=True):
        listener.wait()
        assert generation.finish_reason == "cancelled"


def test_python_programs_use_the_engine_while_it_serves(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    listeners = submit_together(scheduler, requests(engine))
    session = engine.new_session()
    session.feed(engines.random_ids(100))
    assert session.logits().tobytes() == alone.logits(engines.random_ids(100))[-1].tobytes()
    for listener, theirs in zip(listeners, requests(alone), strict=True):
        assert listener.text == theirs.text


# ---- telling -------------------------------------------------------------------------------------


def test_other_passes_are_short_and_texts_go_on_between_them(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    ids = [[3 + n % 50 for n in range(length)] for length in (500, 3, 41)]
    turns: list[list[int]] = []  # of each: passes of texts before it, rows
    begun = threading.Event()
    passes = watch(engine, lambda n, batch: begun.set())

    def in_turn(work: Callable[[int], int]) -> None:
        def run(room: int) -> int:
            num_passes = len(passes)
            rows = work(room)
            # Scores are passes like any other, but not of the texts that are being written.
            del passes[num_passes:]
            turns.append([num_passes, rows])
            return rows

        scheduler.in_turn(run)

    scheduler._rows_per_second = 10 * 2 * FEWEST_ROWS  # so many in a tenth of a second
    listener = Listener()
    options = {**GREEDY, "max_tokens": None}
    stream = scheduler.submit(engine.generate("Once", **options), listener)
    assert begun.wait(PATIENCE)
    scheduler._learn = lambda rows, seconds: None  # type: ignore[method-assign]
    vectors = engine.embed(ids, in_turn=in_turn)
    scored = engine.token_logprobs(ids[0], in_turn=in_turn)
    assert not stream.is_over
    scheduler.cancel(stream)
    listener.wait()
    assert (vectors == alone.embed(ids)).all()
    assert scored == alone.token_logprobs(ids[0])
    assert sum(rows for _, rows in turns) == sum(map(len, ids)) + len(ids[0])
    assert max(rows for _, rows in turns) == 2 * FEWEST_ROWS
    assert all(before < after for (before, _), (after, _) in itertools.pairwise(turns))
    assert stream.generation.tokens == tuple(
        alone.generate("Once", **{**options, "max_tokens": len(stream.generation.tokens)}).tokens
    )


def test_a_mistake_in_somebody_elses_turn_is_theirs_alone(
    scheduler: Scheduler, engine: Engine, alone: Engine
) -> None:
    def work(rows: int) -> int:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        scheduler.in_turn(work)
    listener = Listener()
    scheduler.submit(engine.generate("Once", **GREEDY), listener)
    assert listener.text == alone.generate("Once", **GREEDY).text


def test_nobody_gets_a_turn_when_it_is_closing(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    outcomes: list[Any] = []
    threads = []

    def late() -> None:
        try:
            scheduler.in_turn(lambda rows: rows)
        except Busy as error:
            outcomes.append(error)

    def first(rows: int) -> int:
        threads.append(threading.Thread(target=late))
        threads[0].start()
        while not scheduler._visits:
            threads[0].join(0.001)
        threads.append(threading.Thread(target=scheduler.close))
        threads[1].start()
        while not scheduler._is_closing:
            threads[1].join(0.001)
        return rows

    scheduler.in_turn(first)
    for thread in threads:
        thread.join(PATIENCE)
    assert len(outcomes) == 1
    with pytest.raises(Busy):
        scheduler.in_turn(lambda rows: rows)


def test_pieces_that_come_at_once_are_told_together_but_for_the_first(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.scheduler.PIECES_SECONDS", PATIENCE)
    scheduler = Scheduler(engine)
    generation = engine.generate([7], **{**GREEDY, "max_tokens": 100})
    listener = Listener()
    scheduler.submit(generation, listener)
    assert listener.text == generation.text
    told = [update.text for update in listener.updates if update.text]
    assert told[0] == generation._pieces[0]
    assert len(told) == 2
    scheduler.close()


def test_nothing_is_held_back_while_a_prompt_is_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.scheduler.PIECES_SECONDS", PATIENCE)
    scheduler = Scheduler(engine)
    said, held = Listener(), []
    writing = engine.generate([7], **{**GREEDY, "max_tokens": 200, "speculation": "off"})

    def before(n: int, batch: list[Any]) -> None:
        if n > 20 and any(len(ids) > 1 for _, ids, _ in batch):
            told = "".join(update.text for update in said.updates)
            held.append(len("".join(writing._pieces)) - len(told))

    watch(engine, before)
    scheduler.submit(writing, said)
    reading = Listener(lambda update: None)
    while not writing._tokens[20:]:
        pass
    scheduler.submit(engine.generate(engines.random_ids(600), **GREEDY), reading)
    reading.wait()
    assert held and not any(held)
    said.wait()
    scheduler.close()


def test_pages_are_ready_before_they_are_needed(engine: Engine) -> None:
    pages = engine._loaded.pages
    for _ in range(3):
        before = pages.ready_pages
        pages.prepare_page()
        assert pages.ready_pages == before + 1
    assert pages.pages_in_use == 0
    assert engine.generate(engines.random_ids(100), **GREEDY).text
