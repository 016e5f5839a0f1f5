"""Threads that walk phases: every chunk once, phases in order, and no failure outlives its job.

`walk_phases` counts the runs of every chunk, and fails if a phase begins before the one before it
is done. Where threads outnumber cores, these tests are hardest.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inferno import _native
from inferno.errors import InvalidOption, NativeError

testing = _native.testing

MAX_CHUNKS = 32768  # of a phase


@pytest.fixture(params=[1, 2, 3, 4], scope="module")
def threads(request: pytest.FixtureRequest) -> _native.ThreadPool:
    return _native.ThreadPool(request.param)


@pytest.mark.parametrize(
    "counts",
    [
        [],
        [0],
        [1],
        [0, 0, 0],
        [1, 0, 1],
        [0, 5, 0, 0, 3, 0],
        [1] * 200,
        [7, 1, 64, 3, 1000, 2],
        [MAX_CHUNKS],
        [MAX_CHUNKS, 1, MAX_CHUNKS],
    ],
    ids=lambda counts: f"{len(counts)}-phases-{sum(counts)}-chunks",
)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_every_chunk_runs_once_and_phases_in_order(
    threads: _native.ThreadPool, counts: list[int], nested: bool
) -> None:
    assert testing.walk_phases(threads, counts, nested=nested) == [1] * sum(counts)


def test_thousands_of_tiny_jobs(threads: _native.ThreadPool) -> None:
    for job in range(3000):
        counts = [job % 4, 1, job % 3]
        assert testing.walk_phases(threads, counts) == [1] * sum(counts)


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_a_failure_reaches_the_caller_and_the_pool_works_on(
    threads: _native.ThreadPool, nested: bool
) -> None:
    for chunk in (0, 1, 99):
        for _ in range(20):
            with pytest.raises(RuntimeError, match="a chunk failed"):
                testing.walk_phases(threads, [100, 3, 50], throw_at=chunk, nested=nested)
            assert testing.walk_phases(threads, [5, 2]) == [1] * 7


def test_callers_from_many_threads_take_turns(threads: _native.ThreadPool) -> None:
    def call(caller: int) -> None:
        for job in range(150):
            counts = [1 + (caller + job) % 5, job % 2, 8]
            if job % 10 == caller:
                with pytest.raises(RuntimeError, match="a chunk failed"):
                    testing.walk_phases(threads, counts, throw_at=0)
            assert testing.walk_phases(threads, counts) == [1] * sum(counts)

    with ThreadPoolExecutor(5) as callers:
        for done in [callers.submit(call, caller) for caller in range(5)]:
            done.result(timeout=60)


def test_pools_do_not_share_their_jobs() -> None:
    pools = [_native.ThreadPool(count) for count in (2, 3)]

    def call(pool: _native.ThreadPool) -> None:
        for job in range(200):
            assert testing.walk_phases(pool, [job % 7, 2]) == [1] * (job % 7 + 2)

    with ThreadPoolExecutor(2) as callers:
        for done in [callers.submit(call, pool) for pool in pools]:
            done.result(timeout=60)


@pytest.mark.parametrize("counts", [[MAX_CHUNKS + 1], [3, MAX_CHUNKS + 1], [6, -5]])
def test_an_impossible_number_of_chunks_is_refused(
    threads: _native.ThreadPool, counts: list[int]
) -> None:
    with pytest.raises(NativeError, match="chunks of a phase"):
        testing.walk_phases(threads, counts)
    assert testing.walk_phases(threads, [2]) == [1, 1]


@pytest.mark.parametrize("count", [0, -1, 257, 2**31 - 1])
def test_an_impossible_number_of_threads_is_refused(count: int) -> None:
    with pytest.raises(InvalidOption, match="`threads`: expected 1 to 256"):
        _native.ThreadPool(count)


def test_the_caller_is_one_of_the_threads() -> None:
    assert [_native.ThreadPool(count).size for count in (1, 2, 5)] == [1, 2, 5]


def test_pools_end_whether_they_worked_or_not() -> None:
    for count in (1, 2, 4):
        for _ in range(20):
            _native.ThreadPool(count)
            testing.walk_phases(_native.ThreadPool(count), [3])


# --------------------------------------------------------------------------- parking

TASKS = Path("/proc/self/task")


def until(happened: Callable[[], bool]) -> bool:
    """Look again and again, for at most ten seconds."""
    end = time.monotonic() + 10
    while not happened():
        if time.monotonic() > end:
            return False
        os.sched_yield()
    return True


def state(task: str) -> str:
    """Read R (runs or yields), S (waits), ..."""
    return (TASKS / task / "stat").read_text().rpartition(")")[2].split()[0]


def waits(task: str) -> int:
    """Count how often a thread has gone to wait; a yield is not one."""
    for line in (TASKS / task / "status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not count switches")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at threads through /proc")
@pytest.mark.parametrize("count", [2, 4])
def test_idle_workers_park_and_the_next_job_wakes_them(count: int) -> None:
    before = set(os.listdir(TASKS))
    pool = _native.ThreadPool(count)
    workers = set(os.listdir(TASKS)) - before
    assert len(workers) == count - 1
    for _ in range(20):
        assert until(lambda: all(state(task) == "S" for task in workers))
        asleep = {task: waits(task) for task in workers}
        assert testing.walk_phases(pool, [1, 50, 2]) == [1] * 53
        # A worker that has parked again has been awake.
        assert until(lambda: all(waits(task) > asleep[task] for task in workers))  # noqa: B023
    del pool
    assert until(lambda: not workers & set(os.listdir(TASKS)))
