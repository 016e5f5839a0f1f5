"""One writer at a time: the lock, on systems that have `flock` and on Windows, which has not."""

from __future__ import annotations

import errno
import importlib.util
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from inferno.hub import cache

LK_NBLCK = 2
Locking = Callable[[int, int, int], None]


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> Callable[[Locking], ModuleType]:
    """Return the module as Windows runs it, with a `msvcrt.locking` of the test's."""

    def loaded(locking: Locking) -> ModuleType:
        library = SimpleNamespace(LK_NBLCK=LK_NBLCK, locking=locking)
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setitem(sys.modules, "msvcrt", library)
        assert cache.__file__ is not None
        specification = importlib.util.spec_from_file_location("cache_of_windows", cache.__file__)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module

    return loaded


def said() -> tuple[list[str], cache.Progress]:
    words: list[str] = []
    return words, lambda what, done, total: words.append(what)


def hold(path: Path, ready: Any, release: Any) -> None:
    with cache.lock(path, lambda *_: None):
        ready.set()
        release.wait(30)


def test_a_lock_waits_for_the_process_that_holds_it(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready, release = spawn.Event(), spawn.Event()
    holder = spawn.Process(target=hold, args=(tmp_path / "x", ready, release))
    holder.start()
    assert ready.wait(30)
    words: list[str] = []

    def told(what: str, done: int, total: int) -> None:
        words.append(what)
        release.set()  # not before we wait

    with cache.lock(tmp_path / "x", told):
        pass
    holder.join(30)
    assert words == ["waiting for another process that is fetching it"]
    assert holder.exitcode == 0


def test_a_free_lock_is_had_at_once(
    tmp_path: Path, on_windows: Callable[[Locking], ModuleType]
) -> None:
    calls: list[tuple[int, int]] = []
    module = on_windows(lambda descriptor, mode, size: calls.append((mode, size)))
    words, progress = said()
    with module.lock(tmp_path / "x", progress):
        assert calls == [(LK_NBLCK, 1)]
    assert words == []


def test_a_held_lock_is_tried_for_as_often_as_it_takes(
    tmp_path: Path,
    on_windows: Callable[[Locking], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []

    def locking(descriptor: int, mode: int, size: int) -> None:
        tries.append(mode)
        if len(tries) < 4:
            raise PermissionError(errno.EACCES, "Permission denied")

    pauses: list[float] = []
    words, progress = said()
    module = on_windows(locking)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append))
    with module.lock(tmp_path / "x", progress):
        assert tries == [LK_NBLCK] * 4
    assert words == ["waiting for another process that is fetching it"]
    assert len(pauses) == 2 and min(pauses) > 0  # Ctrl-C is heard in them


@pytest.mark.parametrize("first", [True, False])
def test_a_lock_that_cannot_be_had_is_an_error_and_no_hang(
    tmp_path: Path, on_windows: Callable[[Locking], ModuleType], first: bool
) -> None:
    tries: list[int] = []

    def locking(descriptor: int, mode: int, size: int) -> None:
        tries.append(mode)
        if len(tries) == 1 and not first:
            raise PermissionError(errno.EACCES, "Permission denied")
        raise OSError(errno.EINVAL, "Invalid argument")

    with (
        pytest.raises(OSError, match="Invalid argument"),
        on_windows(locking).lock(tmp_path / "x", lambda *_: None),
    ):
        raise AssertionError("it was not had")
