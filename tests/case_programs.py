"""The kernels' cases as programs (native/cases), for instruction sets that are not here.

`make cases` builds them; whoever has not done so skips what needs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inferno import _native

ROOT = Path(__file__).parents[1]
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
SYSROOT = "/usr/aarch64-linux-gnu"  # where Debian has the cross compiler's libraries
WINE = shutil.which("wine64", path=f"{os.environ.get('PATH', '')}:/usr/lib/wine")  # Debian's place

Cases = dict[str, tuple[int, int]]  # {kernel and kind of input: (answers, hash of all their bytes)}


@dataclass(frozen=True)
class Program:
    path: Path
    before: tuple[str, ...] = ()  # an emulator
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> bytes:
        command = [*self.before, str(self.path), *arguments]
        environment = os.environ | self.environment
        return subprocess.run(command, check=True, capture_output=True, env=environment).stdout

    def cases(self, isa: str) -> Cases:
        lines = [line.split("\t") for line in self.run("cases", isa).decode().splitlines()]
        return {name: (int(count), int(hash, 16)) for name, count, hash in lines}

    def logits(self, frozen: Path, isa: str, ids: list[int]) -> bytes:
        return self.run("logits", str(frozen), isa, *map(str, ids))


def cases_here(isa: str) -> Cases:
    """Return the answers of this process."""
    return {name: (count, hash) for name, count, hash in _native.testing.kernel_cases(isa)}


def program(name: str) -> Program:
    """Return a program that runs on this CPU: `inferno_cases_emulated`, `inferno_cases_evex`."""
    found = [*ROOT.glob(f"build/cp3*/native/{name}")]
    if not found:
        pytest.skip(f"`make cases` builds {name}")
    if name.endswith("evex") and "avx512_vnni" not in _native.isas():
        pytest.skip("needs AVX-512 VL and VNNI")
    return Program(found[0])


def arm_program(cpu: str) -> Program:
    """Return the program for Arm, on a CPU that qemu knows."""
    path = ROOT / "build/arm/native/inferno_cases"
    if not path.is_file():
        pytest.skip("`make cases` builds what this runs, with aarch64-linux-gnu-g++")
    if not QEMU:
        pytest.skip("needs qemu-aarch64 (apt install qemu-user)")
    return Program(path, (QEMU, "-cpu", cpu, "-L", SYSROOT))


def windows_program() -> Program:
    """Return the program for Windows, under Wine with a Windows of its own."""
    path = ROOT / "build/x86_64-windows-gnu/native/inferno_cases.exe"
    if not path.is_file():
        pytest.skip("`make test-windows` builds what this runs, with ziglang")
    if not WINE:
        pytest.skip("needs wine64 (apt install wine64)")
    # No questions, no complaints about what is not there: a screen, .NET, a browser.
    quiet = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml=", "DISPLAY": ""}
    return Program(
        path, (WINE,), {"WINEPREFIX": str(ROOT / "build/wine"), "WINEARCH": "win64"} | quiet
    )
