"""Several threads, processes, handlers and readers around one engine, session or generation."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import engines
from inferno import Engine, InvalidOption

GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("sharing") / "model.gguf"
    return engines.load(engines.tiny_gguf(path, context=512), threads=2)


@pytest.fixture(autouse=True)
def eager_switches() -> Iterator[None]:
    """Let Python change threads as often as it can: races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*works: Callable[[], object]) -> None:
    """Run each in a thread of its own; the first failure fails the test."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_that_feed_one_session_take_turns(engine: Engine) -> None:
    session = engine.new_session()
    at_once(*[lambda k=k: [session.feed([k]) for _ in range(40)] for k in (5, 6, 7)])
    assert sorted(session.tokens) == [5] * 40 + [6] * 40 + [7] * 40
    expected = engine.logits(session.tokens)[-1]
    assert (session.logits() == expected).all()


def test_a_fork_while_another_thread_generates_is_whole(engine: Engine) -> None:
    session = engine.new_session()
    session.feed([1, 2, 3])
    forks = []

    def fork_often() -> None:
        for _ in range(60):
            forks.append(session.fork())

    generation = session.generate(**{**GREEDY, "max_tokens": 100})
    at_once(lambda: generation.text, fork_often)
    for fork in forks[::7]:
        assert (fork.logits() == engine.logits(fork.tokens)[-1]).all()


def test_a_generation_notices_that_its_session_was_changed(engine: Engine) -> None:
    session = engine.new_session()
    first = iter(engine.generate([1, 2, 3], **GREEDY))
    next(first)  # of another session: no concern of this one
    changed = engine.chat("a", session=session, **GREEDY)
    pieces = iter(changed)
    next(pieces)
    assert engine.chat("b", session=session, **GREEDY).finish_reason == "length"
    with pytest.raises(InvalidOption, match="changed while this generation"):
        list(pieces)
    with pytest.raises(InvalidOption, match="changed while this generation"):
        _ = changed.text
    assert engine.chat("a", session=session, **GREEDY).text == engine.chat("a", **GREEDY).text


def test_readers_of_one_generation_all_get_the_text(engine: Engine) -> None:
    expected = engine.generate([1, 2, 3], **GREEDY).text
    for _ in range(5):
        generation, texts = engine.generate([1, 2, 3], **GREEDY), []
        read = [lambda g=generation, t=texts: t.append("".join(g))] * 3
        at_once(*read, lambda g=generation, t=texts: t.append(g.text))
        assert texts == [expected] * 4


def test_a_signal_handler_that_runs_the_engine_changes_no_result(engine: Engine) -> None:
    ids = engines.random_ids(60)
    expected = engine.logits(ids)[-1]
    calls = []

    def handler(*_: object) -> None:
        calls.append(engine.new_session().feed([9]))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while len(calls) < 20:
            session = engine.new_session()
            session.feed(ids)
            assert (session.logits() == expected).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_cannot_use_the_session_that_it_interrupted(engine: Engine) -> None:
    session = engine.new_session()
    with session._exclusive(), pytest.raises(InvalidOption, match="was interrupted"):
        session.feed([1])
    assert session.feed([1]) == 1


def test_a_copy_of_a_session_is_a_fork(engine: Engine) -> None:
    session = engine.new_session()
    session.feed([1, 2, 3])
    for twin in (copy.copy(session), copy.deepcopy(session)):
        twin.feed([4])
        assert session.tokens == (1, 2, 3)
        assert (twin.logits() == engine.logits([1, 2, 3, 4])[-1]).all()


def test_an_engine_cannot_be_pickled_or_copied(engine: Engine) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="load it again"):
            attempt(engine)


FORKED = """
import os, sys
from inferno import Engine, InvalidOption
engine = Engine.load(sys.argv[1], threads=4)
expected = engine.logits([1, 2, 3]).tobytes()
child = os.fork()
if child == 0:
    try:
        engine.logits([1, 2, 3])
        os._exit(2)
    except InvalidOption as error:
        assert "forked" in str(error)
    mine = Engine.load(sys.argv[1], threads=2)
    assert mine.logits([1, 2, 3]).tobytes() == expected
    del engine
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert engine.logits([1, 2, 3]).tobytes() == expected
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_to_load_its_own_engine(tmp_path: Path) -> None:
    path = engines.tiny_gguf(tmp_path / "model.gguf")
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(path)], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


STARVED = """
import resource, sys
from inferno import OutOfMemory, _native
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (300 << 20), before[1]))
try:
    _native.ThreadPool(256)
except OutOfMemory as error:
    assert "expected 256" in str(error)
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert _native.testing.walk_phases(_native.ThreadPool(2), [5]) == [1] * 5
    sys.exit(7)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits address space as Linux does"
)
def test_threads_that_the_system_refuses_are_an_error_and_no_hang() -> None:
    result = subprocess.run(
        [sys.executable, "-c", STARVED], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 7, result.stderr
