"""What this machine lets us use: threads and memory, as a container sees them.

Linux is asked here, other systems in `windows` and `macos`. Knows nothing of models. The CPU's
instruction sets are the native core's business.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

from inferno import macos, windows
from inferno.errors import InvalidOption
from inferno.excerpt import shown

MAX_THREADS = 256  # kMaxThreads in native/base/thread_pool.h

_CGROUP = Path("/sys/fs/cgroup")

# From this many cores on, about a sixth stays free: a spinning worker that the system puts aside
# in mid-chunk makes everyone wait (the post's 18 to 20 threads on 20 cores lost up to 70 %).
_MANY_CORES = 6


def default_threads() -> int:
    """Return INFERNO_THREADS, or the threads that may run here at full speed.

    The least of the affinity mask, the cgroup's CPU quota (rounded down) and the physical cores;
    on machines with many cores a sixth is left free.

    Raises:
        InvalidOption: INFERNO_THREADS is no integer from 1 to MAX_THREADS.
    """
    asked = os.environ.get("INFERNO_THREADS")
    if asked:
        # No more digits than it takes: Python refuses to read thousands of them.
        digits = asked.lstrip("0") if asked.isascii() and asked.isdigit() else ""
        if not 1 <= len(digits) <= 3 or int(digits) > MAX_THREADS:
            raise InvalidOption(
                f"INFERNO_THREADS: expected an integer from 1 to {MAX_THREADS}, "
                f"found {shown(asked)}"
            )
        return int(digits)
    available = affinity()
    quota = cpu_quota()
    if quota is not None:
        available = min(available, max(1, int(quota)))
    physical = physical_cores()
    if physical is not None:
        available = min(available, physical)
    return min(available if available < _MANY_CORES else available - available // 6, MAX_THREADS)


def affinity() -> int:
    """Count the CPUs that this process may use."""
    if sys.platform == "win32":
        return windows.affinity() or os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_cores() -> int | None:
    """Count the distinct (package, core) pairs among the CPUs we may use; None if unknown.

    On macOS those cores that are fast.
    """
    if sys.platform == "win32":
        return windows.physical_cores()
    if sys.platform == "darwin":
        return macos.physical_cores()
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = set()
    for cpu in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            package = (topology / "physical_package_id").read_text().strip()
            core = (topology / "core_id").read_text().strip()
        except OSError:
            return None
        cores.add((package, core))
    return len(cores) or None


def _cgroup_files(name: str, legacy: str) -> list[Path]:
    """Return the files `name` from our cgroup up to the root (v2), and v1's `legacy`."""
    files = []
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, _, group = line.rpartition(":")
        if line.startswith("0::"):
            parts = [p for p in group.split("/") if p]
            files += [_CGROUP.joinpath(*parts[:n], name) for n in range(len(parts), -1, -1)]
    return [*files, _CGROUP / legacy]


def cpu_quota() -> float | None:
    quotas = []
    for file in _cgroup_files("cpu.max", "cpu/cpu.cfs_quota_us"):
        try:
            words = file.read_text().split()
            if file.name == "cpu.cfs_quota_us":
                words.append((file.parent / "cpu.cfs_period_us").read_text().strip())
            if words[0] not in ("max", "-1"):
                quotas.append(int(words[0]) / int(words[1]))
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue
    return min(quotas, default=None)


def cpu_name() -> str:
    """Return the CPU's name, as the system has it."""
    if sys.platform == "win32":
        name = windows.cpu_name()
    elif sys.platform == "darwin":
        name = macos.cpu_name()
    else:
        found = re.search(r"^model name\s*:(.*)$", _cpuinfo(), re.MULTILINE)
        name = found[1].strip() if found else None
    return name or platform.processor() or platform.machine()


def core_kinds() -> int:
    """Return how many kinds of cores Linux or macOS tells apart, on Arm: two on big.LITTLE."""
    if sys.platform == "darwin":
        return macos.core_kinds() or 1
    return max(1, len(set(re.findall(r"^CPU part\s*:\s*(\S+)", _cpuinfo(), re.MULTILINE))))


# Of a CPU's hundred flags, those that say what it multiplies with.
_VECTOR_FLAGS = re.compile(
    r"avx\w*|fma|f16c|ssse3|sse4_[12]|amx_\w+|gfni|asimd\w*|i8mm|bf16|fphp|sve\w*|sme2?|sme_\w+"
)


def cpu_flags() -> list[str]:
    """Return the CPU's vector instructions, as the system calls them, in order of their names."""
    for line in _cpuinfo().splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in ("flags", "Features"):  # x86, Arm
            return sorted(flag for flag in flags.split() if _VECTOR_FLAGS.fullmatch(flag))
    return []


def _cpuinfo() -> str:
    """Return what Linux writes of the CPU; nothing elsewhere."""
    try:
        return Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return ""


def available_memory() -> int | None:
    """Return the bytes that can still be allocated without swapping, or None if unknown.

    The least of the system's available memory and what the cgroups above us leave.
    """
    if sys.platform == "win32":
        return windows.available_memory()
    if sys.platform == "darwin":
        return macos.available_memory()
    limits = []
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("ascii"))
        if match:
            limits.append(int(match[1]) * 1024)
    except OSError:
        pass
    for file in _cgroup_files("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = file.read_text().strip()
            used_name = "memory.current" if file.name == "memory.max" else "memory.usage_in_bytes"
            if text == "max" or int(text) >= 1 << 60:
                continue
            used = int((file.parent / used_name).read_text())
            limits.append(max(0, int(text) - used + _reclaimable(file.parent)))
        except (OSError, ValueError):
            continue
    return min(limits, default=None)


def _reclaimable(group: Path) -> int:
    """Count the cgroup's page cache, which the kernel gives up before it refuses memory."""
    try:
        match = re.search(r"^inactive_file (\d+)$", (group / "memory.stat").read_text(), re.M)
        return int(match[1]) if match else 0
    except OSError:
        return 0
