"""What Windows says of this machine and its console; None where it does not."""

from __future__ import annotations

import ctypes
import sys
from typing import TextIO

_CURRENT_PROCESS = ctypes.c_void_p(-1)  # GetCurrentProcess()
_PROCESSOR_CORE = 0  # RelationProcessorCore
_PROCESSES_ESCAPES = 0x4  # ENABLE_VIRTUAL_TERMINAL_PROCESSING


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total_physical", ctypes.c_uint64),
        ("available_physical", ctypes.c_uint64),
        ("total_commit", ctypes.c_uint64),
        ("available_commit", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended", ctypes.c_uint64),
    )


class _ProcessorInformation(ctypes.Structure):
    """SYSTEM_LOGICAL_PROCESSOR_INFORMATION, whose union is of no interest here."""

    _fields_ = (
        ("mask", ctypes.c_size_t),
        ("relationship", ctypes.c_int),
        ("details", ctypes.c_uint64 * 2),
    )


def available_memory() -> int | None:
    """Return the bytes that are free, and that the system would still promise."""
    if sys.platform == "win32":
        status = _MemoryStatus(ctypes.sizeof(_MemoryStatus))
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return int(min(status.available_physical, status.available_commit))
    return None


def affinity() -> int | None:
    """Count the CPUs that this process may use; None where it may use several groups of 64."""
    return _affinity_mask().bit_count() or None


def _affinity_mask() -> int:
    if sys.platform == "win32":
        ours, all_cpus = ctypes.c_size_t(), ctypes.c_size_t()
        if ctypes.windll.kernel32.GetProcessAffinityMask(
            _CURRENT_PROCESS, ctypes.byref(ours), ctypes.byref(all_cpus)
        ):
            return ours.value
    return 0


def physical_cores() -> int | None:
    """Count the cores whose threads this process may use."""
    if sys.platform == "win32":
        ask, length = ctypes.windll.kernel32.GetLogicalProcessorInformation, ctypes.c_uint32()
        ask(None, ctypes.byref(length))
        size = ctypes.sizeof(_ProcessorInformation)
        found = (_ProcessorInformation * (length.value // size))()
        if length.value and ask(found, ctypes.byref(length)):
            mask = _affinity_mask()
            cores = [entry for entry in found if entry.relationship == _PROCESSOR_CORE]
            return sum(1 for core in cores if not mask or core.mask & mask) or None
    return None


def cpu_name() -> str | None:
    """Return the CPU's name, as its maker has it."""
    if sys.platform == "win32":
        import winreg

        key = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as processor:
                return str(winreg.QueryValueEx(processor, "ProcessorNameString")[0]).strip()
        except OSError:
            pass
    return None


def shows_escapes(console: TextIO) -> bool:
    """Have the console obey escape sequences, as others do; tell whether it does."""
    if sys.platform == "win32":
        import msvcrt

        try:
            handle = ctypes.c_void_p(msvcrt.get_osfhandle(console.fileno()))
        except (OSError, ValueError):
            return False
        kernel, mode = ctypes.windll.kernel32, ctypes.c_uint32()
        if kernel.GetConsoleMode(handle, ctypes.byref(mode)):
            return bool(kernel.SetConsoleMode(handle, mode.value | _PROCESSES_ESCAPES))
    return False


def unread_bytes(descriptor: int) -> int:
    """Count what a pipe holds that nobody has read; 0 for what is no pipe."""
    if sys.platform == "win32":
        import msvcrt

        count = ctypes.c_uint32()
        try:
            handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
        except OSError:
            return 0
        if ctypes.windll.kernel32.PeekNamedPipe(handle, None, 0, None, ctypes.byref(count), None):
            return count.value
    return 0
