"""What macOS is asked: `sysctlbyname` played by another, with values as of Apple's machines."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from inferno import machine, macos

GB = 1 << 30
M1 = {
    "hw.perflevel0.physicalcpu": struct.pack("<i", 4),
    "hw.physicalcpu": struct.pack("<i", 8),
    "hw.nperflevels": struct.pack("<i", 2),
    "hw.memsize": struct.pack("<q", 16 * GB),
    "kern.memorystatus_level": struct.pack("<i", 25),
    "machdep.cpu.brand_string": b"Apple M1\0",
}
INTEL = {
    "hw.physicalcpu": struct.pack("<i", 6),
    "hw.memsize": struct.pack("<q", 32 * GB),
    "machdep.cpu.brand_string": b"Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz\0",
}


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    found: dict[str, bytes] = {}

    def ask(name: bytes, data: Any, size: Any, new: None, new_size: Any) -> int:
        assert new is None and new_size.value == 0  # nothing is set
        value = found.get(name.decode())
        if value is None:
            return -1
        if data is not None:
            assert size._obj.value >= len(value)
            ctypes.memmove(data, value, len(value))
        size._obj.value = len(value)
        return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(sysctlbyname=ask))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("INFERNO_THREADS", raising=False)
    return found


def test_slow_cores_are_left_out(values: dict[str, bytes]) -> None:
    values.update(M1)
    assert (machine.physical_cores(), machine.core_kinds()) == (4, 2)
    assert (machine.affinity(), machine.default_threads()) == (8, 4)
    assert machine.cpu_name() == "Apple M1"


def test_cores_that_are_all_alike_are_all_used(values: dict[str, bytes]) -> None:
    values.update(INTEL)
    assert (machine.physical_cores(), machine.core_kinds()) == (6, 1)
    assert machine.cpu_name().startswith("Intel(R) Core(TM) i7")


def test_memory_is_the_share_that_is_left(values: dict[str, bytes]) -> None:
    values.update(M1)
    assert machine.available_memory() == 4 * GB
    del values["kern.memorystatus_level"]
    assert machine.available_memory() is None


def test_what_is_not_known_is_unknown(values: dict[str, bytes]) -> None:
    values["hw.physicalcpu"] = b"12 cores"[:3]  # no integer has three bytes
    assert macos.physical_cores() is macos.cpu_name() is macos.available_memory() is None
    assert machine.core_kinds() == 1 and machine.cpu_name()


@pytest.mark.skipif(sys.platform != "darwin", reason="asks the real macOS")
def test_the_real_one_answers() -> None:
    assert macos.physical_cores() and macos.cpu_name()
    assert 0 < (macos.available_memory() or 0) < 1 << 50
