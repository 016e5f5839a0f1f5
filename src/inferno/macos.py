"""What macOS says of this machine, by `sysctl`; None where it does not."""

from __future__ import annotations

import ctypes


def physical_cores() -> int | None:
    """Count the cores that are fast: a kernel that waits for a slow one gains nothing by it."""
    return _number("hw.perflevel0.physicalcpu") or _number("hw.physicalcpu")


def core_kinds() -> int | None:
    """Return how many kinds of cores there are: two with performance and efficiency cores."""
    return _number("hw.nperflevels")


def cpu_name() -> str | None:
    """Return the CPU's name, as its maker has it."""
    text = _value("machdep.cpu.brand_string")
    return text.rstrip(b"\0").decode("utf-8", "replace").strip() or None if text else None


def available_memory() -> int | None:
    """Return the bytes that the system would give out before it is short of memory."""
    total, percent = _number("hw.memsize"), _number("kern.memorystatus_level")
    return None if total is None or percent is None else total * min(percent, 100) // 100


def _number(name: str) -> int | None:
    value = _value(name)
    return int.from_bytes(value, "little") if value is not None and len(value) in (4, 8) else None


def _value(name: str) -> bytes | None:
    try:
        ask = ctypes.CDLL(None).sysctlbyname
    except AttributeError:
        return None
    size = ctypes.c_size_t()
    if ask(name.encode(), None, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return None
    buffer = ctypes.create_string_buffer(size.value)
    if ask(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return None
    return buffer.raw[: size.value]
