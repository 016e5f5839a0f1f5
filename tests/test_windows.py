"""What Windows is asked: its functions played by others, which fill in what Microsoft documents."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from inferno import machine, windows

GB = 1 << 30
ON_WINDOWS = sys.platform == "win32"


def fill(pointer: Any, data: bytes) -> None:
    """Write to what `byref` or an array points to, as a function of the system would."""
    target = getattr(pointer, "_obj", pointer)
    assert ctypes.sizeof(target) == len(data)
    ctypes.memmove(ctypes.addressof(target), data, len(data))


class Kernel:
    """kernel32, of a machine with two groups of two threads and whatever a test sets."""

    available, commit = 6 * GB, 9 * GB
    mask = 0b1111
    cores = (0b0011, 0b1100)
    answers = True

    def GlobalMemoryStatusEx(self, status: Any) -> int:
        length = struct.unpack_from("<I", bytes(status._obj))[0]
        if not self.answers or length != 64:  # it refuses any other
            return 0
        limits = (16 * GB, self.available, 20 * GB, self.commit, 1 << 47, 1 << 47, 0)
        fill(status, struct.pack("<II7Q", 64, 60, *limits))
        return 1

    def GetProcessAffinityMask(self, process: Any, ours: Any, everybody: Any) -> int:
        assert process.value == (1 << 64) - 1
        fill(ours, struct.pack("<Q", self.mask))
        fill(everybody, struct.pack("<Q", 0b1111))
        return int(self.answers)

    def GetLogicalProcessorInformation(self, entries: Any, length: Any) -> int:
        cache = struct.pack("<QI4xQQ", 0b1111, 2, 1 << 40, 0)  # RelationCache
        core = [struct.pack("<QI4xQQ", mask, 0, 1, 0) for mask in self.cores]
        data = b"".join([*core, cache])
        if not self.answers:
            return 0
        if entries is None or length._obj.value < len(data):
            length._obj.value = len(data)
            return 0
        fill(entries, data)
        return 1

    def PeekNamedPipe(self, handle: Any, data: Any, size: int, read: Any, left: Any, _: Any) -> int:
        if handle.value != 70 or not self.answers:
            return 0
        left._obj.value = 5
        return 1

    console_mode: int | None = 0x3

    def GetConsoleMode(self, handle: Any, mode: Any) -> int:
        if self.console_mode is None:
            return 0
        mode._obj.value = self.console_mode
        return 1

    def SetConsoleMode(self, handle: Any, mode: int) -> int:
        self.console_mode = mode
        return int(self.answers)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    handles = SimpleNamespace(get_osfhandle=lambda descriptor: descriptor * 10)
    monkeypatch.setitem(sys.modules, "msvcrt", handles)
    return kernel


@pytest.mark.parametrize(("available", "commit", "found"), [(6, 9, 6), (6, 2, 2), (0, 9, 0)])
def test_memory_is_what_is_free_and_may_be_promised(
    kernel: Kernel, available: int, commit: int, found: int
) -> None:
    kernel.available, kernel.commit = available * GB, commit * GB
    assert machine.available_memory() == found * GB


def test_threads_are_those_of_the_mask(kernel: Kernel) -> None:
    kernel.mask = 0b0111
    assert machine.affinity() == 3


@pytest.mark.parametrize(("mask", "cores"), [(0b1111, 2), (0b0011, 1), (0b0110, 2), (0b1000, 1)])
def test_cores_are_those_whose_threads_the_mask_has(
    kernel: Kernel, mask: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.mask = mask
    assert machine.physical_cores() == cores
    monkeypatch.delenv("INFERNO_THREADS", raising=False)
    assert machine.default_threads() == cores


def test_a_system_that_does_not_answer_is_unknown(kernel: Kernel) -> None:
    kernel.answers = False
    assert (windows.available_memory(), windows.affinity()) == (None, None)
    assert windows.physical_cores() is None
    assert machine.affinity() == os.cpu_count()


def test_a_process_of_several_groups_has_all_cores(kernel: Kernel) -> None:
    kernel.mask = 0  # which is what the function says of those
    assert windows.affinity() is None
    assert windows.physical_cores() == 2


def test_the_name_of_the_cpu_is_that_of_the_registry(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Key:
        def __enter__(self) -> Key:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def open_key(root: str, path: str) -> Key:
        if (root, path) != ("HKLM", "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0"):
            raise FileNotFoundError
        return Key()

    values = {"ProcessorNameString": ("Testing CPU @ 3 GHz  ", 1)}
    registry = SimpleNamespace(
        HKEY_LOCAL_MACHINE="HKLM", OpenKey=open_key, QueryValueEx=lambda key, name: values[name]
    )
    monkeypatch.setitem(sys.modules, "winreg", registry)
    assert machine.cpu_name() == "Testing CPU @ 3 GHz"
    registry.HKEY_LOCAL_MACHINE = "elsewhere"
    assert windows.cpu_name() is None and machine.cpu_name()


class Console:
    def fileno(self) -> int:
        return 1


def test_a_console_is_told_to_obey_escape_sequences(kernel: Kernel) -> None:
    assert windows.shows_escapes(Console())  # type: ignore[arg-type]
    assert kernel.console_mode == 0x3 | 0x4


def test_an_old_console_or_none_has_no_colours(kernel: Kernel) -> None:
    kernel.answers = False
    assert not windows.shows_escapes(Console())  # type: ignore[arg-type]
    kernel.answers, kernel.console_mode = True, None
    assert not windows.shows_escapes(Console())  # type: ignore[arg-type]


def test_a_pipe_tells_what_is_in_it_and_a_file_does_not(kernel: Kernel) -> None:
    assert windows.unread_bytes(7) == 5
    assert windows.unread_bytes(8) == 0


@pytest.mark.skipif(not ON_WINDOWS, reason="asks the real Windows")
def test_the_real_one_answers() -> None:
    assert windows.affinity() == os.cpu_count()
    assert 1 <= (windows.physical_cores() or 0) <= (os.cpu_count() or 0)
    assert windows.available_memory() is not None and windows.cpu_name()


@pytest.mark.skipif(ON_WINDOWS, reason="asks a system that is not Windows")
def test_elsewhere_nothing_is_asked() -> None:
    assert windows.available_memory() is windows.affinity() is windows.physical_cores() is None
    assert windows.cpu_name() is None and windows.unread_bytes(0) == 0
