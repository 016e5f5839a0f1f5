"""Threads and memory as a container sees them, on a file system made for the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inferno import InvalidOption, machine

MB = 1 << 20


class Machine:
    """A root folder that stands for `/`, and the CPUs we may use."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        monkeypatch.delenv("INFERNO_THREADS", raising=False)
        monkeypatch.setattr(machine, "Path", lambda path: root / str(path).lstrip("/"))
        monkeypatch.setattr(machine, "_CGROUP", root / "sys/fs/cgroup")
        self.cpus(4)

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def cpus(self, count: int) -> None:
        affinity = set(range(count))
        self._monkeypatch.setattr(os, "sched_getaffinity", lambda _: affinity, raising=False)

    def cores(self, cores: list[tuple[int, int]]) -> None:
        """Say which (package, core) each CPU is a thread of."""
        self.cpus(len(cores))
        for cpu, (package, core) in enumerate(cores):
            topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
            self.write(f"{topology}/physical_package_id", f"{package}\n")
            self.write(f"{topology}/core_id", f"{core}\n")

    def cgroup(self, group: str, **files: str) -> None:
        """Put us in the cgroup (v2) `group`, and files into it; `cpu_max` is `cpu.max`."""
        self.write("/proc/self/cgroup", f"0::{group}\n")
        self.put(group, **files)

    def put(self, group: str, **files: str) -> None:
        for name, text in files.items():
            self.write(f"/sys/fs/cgroup{group}/{name.replace('_', '.', 1)}", text)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


# ---- threads -------------------------------------------------------------------------------------


def test_the_affinity_mask_is_the_first_limit(fake: Machine) -> None:
    for count in (1, 2, 4):
        fake.cpus(count)
        assert machine.default_threads() == count


@pytest.mark.parametrize(
    ("cpus", "threads"),
    [(5, 5), (6, 5), (8, 7), (12, 10), (20, 17), (64, 54), (128, 107), (999, 256)],
)
def test_many_cores_leave_a_sixth_free(fake: Machine, cpus: int, threads: int) -> None:
    fake.cpus(cpus)
    assert machine.default_threads() == threads


def test_two_threads_of_a_core_count_once(fake: Machine) -> None:
    fake.cores([(0, 0), (0, 1), (0, 0), (0, 1)])
    assert machine.default_threads() == 2


def test_equal_core_numbers_of_two_packages_are_two_cores(fake: Machine) -> None:
    fake.cores([(0, 0), (1, 0), (0, 1), (1, 1)])
    assert machine.default_threads() == 4


def test_an_unknown_topology_is_no_limit(fake: Machine) -> None:
    fake.cores([(0, 0), (0, 0)])
    fake.cpus(3)  # the third has no files
    assert machine.default_threads() == 3


@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        ("250000 100000", 2),  # rounded down
        ("200000 100000", 2),
        ("50000 100000", 1),  # but never to none
        ("1 100000", 1),
        ("max 100000", 4),
        ("900000 100000", 4),
    ],
)
def test_the_quota_of_the_cgroup_limits_threads(fake: Machine, quota: str, threads: int) -> None:
    fake.cgroup("/docker/abc", cpu_max=f"{quota}\n")
    assert machine.default_threads() == threads


def test_the_tightest_cgroup_on_the_way_up_counts(fake: Machine) -> None:
    fake.cgroup("/a/b/c", cpu_max="max 100000\n")
    fake.put("/a/b", cpu_max="300000 100000\n")
    fake.put("/a", cpu_max="100000 100000\n")
    assert machine.default_threads() == 1
    fake.put("/a", cpu_max="max 100000\n")
    assert machine.default_threads() == 3


def test_a_container_that_sees_its_cgroup_as_the_root_is_limited(fake: Machine) -> None:
    fake.cgroup("/", cpu_max="200000 100000\n")
    assert machine.default_threads() == 2


def test_the_quota_of_a_first_generation_cgroup_limits_threads(fake: Machine) -> None:
    fake.write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n")
    fake.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n")
    fake.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n")
    assert machine.default_threads() == 3
    fake.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    assert machine.default_threads() == 4


@pytest.mark.parametrize("text", ["", "100000", "a b", "100000 0", "\n", "1e5 1e5"])
def test_a_quota_that_cannot_be_read_is_no_limit(fake: Machine, text: str) -> None:
    fake.cgroup("/a", cpu_max=text)
    assert machine.default_threads() == 4


def test_the_environment_decides_alone(fake: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.cgroup("/a", cpu_max="100000 100000\n")
    monkeypatch.setenv("INFERNO_THREADS", "9")
    assert machine.default_threads() == 9
    monkeypatch.setenv("INFERNO_THREADS", "")
    assert machine.default_threads() == 1


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.5", "two", " ", "²", "1 2", "0x2", "257", "1000", "9" * 5000]
)
def test_an_impossible_number_of_threads_is_an_error(
    fake: Machine, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("INFERNO_THREADS", text)
    with pytest.raises(InvalidOption, match=r"INFERNO_THREADS: .* 1 to 256") as caught:
        machine.default_threads()
    assert len(caught.value.message) < 200


def test_the_default_here_is_what_may_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFERNO_THREADS", raising=False)
    assert 1 <= machine.default_threads() <= (os.cpu_count() or 1)


# ---- memory --------------------------------------------------------------------------------------


def test_available_memory_is_that_of_the_system(fake: Machine) -> None:
    fake.write("/proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\n")
    assert machine.available_memory() == 2 * MB


def test_a_cgroup_leaves_its_limit_less_what_is_used(fake: Machine) -> None:
    fake.write("/proc/meminfo", "MemAvailable: 1048576 kB\n")
    fake.cgroup("/a", memory_max=f"{100 * MB}\n", memory_current=f"{60 * MB}\n")
    assert machine.available_memory() == 40 * MB


def test_the_page_cache_of_a_cgroup_can_be_taken_back(fake: Machine) -> None:
    fake.cgroup("/a", memory_max=f"{100 * MB}", memory_current=f"{90 * MB}")
    fake.put("/a", memory_stat=f"anon 5\ninactive_file {70 * MB}\nactive_file 3\n")
    assert machine.available_memory() == 80 * MB


def test_a_cgroup_over_its_limit_leaves_nothing(fake: Machine) -> None:
    fake.cgroup("/a", memory_max=f"{10 * MB}", memory_current=f"{11 * MB}")
    assert machine.available_memory() == 0


def test_the_least_of_all_memory_limits_counts(fake: Machine) -> None:
    fake.write("/proc/meminfo", "MemAvailable: 51200 kB\n")
    fake.cgroup("/a/b", memory_max="max", memory_current="1")
    fake.put("/a", memory_max=f"{30 * MB}", memory_current=f"{10 * MB}")
    assert machine.available_memory() == 20 * MB
    fake.put("/a", memory_max=f"{300 * MB}")
    assert machine.available_memory() == 50 * MB


def test_a_first_generation_cgroup_limits_memory(fake: Machine) -> None:
    fake.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{64 * MB}\n")
    fake.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", f"{24 * MB}\n")
    assert machine.available_memory() == 40 * MB
    # How "no limit" is spelled there: the largest number of whole pages.
    fake.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert machine.available_memory() is None


def test_memory_is_unknown_where_nobody_says(fake: Machine) -> None:
    assert machine.available_memory() is None
    fake.write("/proc/meminfo", "MemTotal: 4096 kB\n")
    fake.cgroup("/a", memory_max="lots", memory_current="some")
    assert machine.available_memory() is None


def test_this_machine_has_memory() -> None:
    available = machine.available_memory()
    assert available is None or available > 0


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        (
            "flags\t\t: fpu smep avx2 fma sse4_1 avx512_vnni aes",
            ["avx2", "avx512_vnni", "fma", "sse4_1"],
        ),
        (
            "Features\t: fp asimd crc32 asimddp i8mm sve sme",
            ["asimd", "asimddp", "i8mm", "sme", "sve"],
        ),
    ],
)
def test_of_a_cpus_flags_those_count_that_multiply(
    fake: Machine, line: str, flags: list[str]
) -> None:
    assert machine.cpu_flags() == []
    fake.write("proc/cpuinfo", f"processor\t: 0\n{line}\n\nprocessor\t: 1\n{line}\n")
    assert machine.cpu_flags() == flags


def test_kinds_of_cores_are_counted_by_their_part(fake: Machine) -> None:
    assert machine.core_kinds() == 1  # x86 says nothing of it, and here there is no file
    parts = ["0xd05", "0xd05", "0xd0a"]
    text = "".join(f"processor\t: {i}\nCPU part\t: {part}\n\n" for i, part in enumerate(parts))
    fake.write("proc/cpuinfo", text)
    assert machine.core_kinds() == 2
