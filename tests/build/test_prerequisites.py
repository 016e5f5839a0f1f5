"""What is missing to build is said in two lines, the second of which says what to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "_build/prerequisites.py"
CMAKE = shutil.which("cmake", path=sysconfig.get_path("scripts")) or shutil.which("cmake")


@pytest.fixture
def prerequisites() -> ModuleType:
    specification = importlib.util.spec_from_file_location("prerequisites", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def compiler(folder: Path, name: str, script: str) -> Path:
    """Write a program that stands for a compiler."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_this_machine_has_what_it_takes(prerequisites: ModuleType) -> None:
    assert prerequisites.missing() is None


def test_an_old_python_is_named_and_another_asked_for(
    prerequisites: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prerequisites.sys, "version_info", (3, 8, 18, "final", 0))
    error, hint = prerequisites.missing()
    assert "3.10 or newer is needed, found 3.8.18" in error and sys.executable in error
    assert "make PYTHON=" in hint


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Windows without a compiler on the PATH; returns where LLVM would install one."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("PROGRAMFILES", str(tmp_path))
    for name in ("CXX", "CMAKE_GENERATOR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    folder = tmp_path / "LLVM/bin"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.usefixtures("on_windows")
def test_windows_without_a_compiler_is_told_what_to_install(prerequisites: ModuleType) -> None:
    error, hint = prerequisites.missing((prerequisites.compiler,))
    assert error == "no C++ compiler was found"
    assert "winget install LLVM.LLVM" in hint and "BuildTools" in hint and "WSL" in hint


def test_windows_takes_the_compiler_that_llvm_installs(
    prerequisites: ModuleType, on_windows: Path
) -> None:
    clang = compiler(on_windows, "clang++.exe", "exit 0")
    assert prerequisites.compiler() is None
    prerequisites.choose_for_windows()
    assert os.environ["CXX"] == str(clang) and os.environ["CMAKE_GENERATOR"] == "Ninja"
    assert prerequisites.compiler() is None  # by its name, too


def test_windows_without_the_library_of_c_is_told_to_install_it(
    prerequisites: ModuleType, on_windows: Path
) -> None:
    compiler(
        on_windows, "clang++.exe", 'case "$*" in *--version*) echo "clang 20";; *) exit 1;; esac'
    )
    error, hint = prerequisites.missing((prerequisites.compiler,))
    assert error.endswith("does not compile C++20: clang 20") and "BuildTools" in hint


def test_what_somebody_chose_on_windows_stays(
    prerequisites: ModuleType, on_windows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(on_windows, "clang++.exe", "exit 0")
    chosen = compiler(on_windows, "clang 19.exe", "exit 0")
    monkeypatch.setenv("CXX", str(chosen))
    monkeypatch.setenv("CMAKE_GENERATOR", "Ninja Multi-Config")
    prerequisites.choose_for_windows()
    assert os.environ["CXX"] == str(chosen)
    assert os.environ["CMAKE_GENERATOR"] == "Ninja Multi-Config"
    assert prerequisites.compiler() is None  # a path with a space in it


def test_a_python_without_environments_names_the_package_that_has_them(
    prerequisites: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    error, hint = prerequisites.missing()
    assert "ensurepip" in error and "python3-venv" in hint


def test_a_python_without_headers_names_the_package_that_has_them(
    prerequisites: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prerequisites.sysconfig, "get_path", lambda name: str(tmp_path))
    error, hint = prerequisites.missing()
    assert f"Python.h in {tmp_path}" in error and "python3-dev" in hint


def test_no_compiler_at_all(
    prerequisites: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    error, hint = prerequisites.missing()
    assert error == "no C++ compiler was found" and "apt install g++" in hint


def test_a_compiler_that_is_named_and_is_not_there(
    prerequisites: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "g++-99 -m64")
    error, _ = prerequisites.missing()
    assert error == "no C++ compiler was found (CXX is `g++-99`)"


def test_a_compiler_that_is_too_old_says_its_version(
    prerequisites: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = compiler(
        tmp_path,
        "g++-9",
        'case "$*" in *--version*) echo "g++ (Debian 9.3.0-22) 9.3.0";; '
        "*) echo \"error: unrecognized command line option '-std=c++20'\" >&2; exit 1;; esac",
    )
    monkeypatch.setenv("CXX", str(old))
    error, hint = prerequisites.missing()
    assert error == f"`{old}` does not compile C++20: g++ (Debian 9.3.0-22) 9.3.0"
    assert "CXX=" in hint


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ and CMake")
@pytest.mark.skipif(CMAKE is None, reason="needs g++ and CMake")
def test_gcc_for_windows_is_refused_with_what_to_install(tmp_path: Path) -> None:
    """It leaves vectors unaligned: what it compiles would crash, one day."""
    settings = {"INFERNO_CASES": "ON", "SYSTEM_NAME": "Windows", "SYSTEM_PROCESSOR": "AMD64"}
    settings |= {"CXX_COMPILER": "g++", "CXX_COMPILER_WORKS": "1", "RC_COMPILER": sys.executable}
    defined = [
        f"-D{name if name.startswith('INFERNO') else f'CMAKE_{name}'}={value}"
        for name, value in settings.items()
    ]
    command = [str(CMAKE), "-S", str(ROOT), "-B", str(tmp_path), "-G", "Ninja", *defined]
    path = os.pathsep.join([str(Path(str(CMAKE)).parent), os.environ["PATH"]])
    environment = plain_environment() | {"PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    said = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert "winget install LLVM.LLVM" in said
    assert "set CXX=clang++ and CMAKE_GENERATOR=Ninja" in said


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX make")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["PYTHON=python-that-is-not-there"], "no Python was found (python-that-is-not-there)"),
        (["CXX=g++-99"], "no C++ compiler was found (CXX is `g++-99`)"),
    ],
)
def test_make_says_it_before_anything_is_fetched(
    settings: list[str], said: str, tmp_path: Path
) -> None:
    command = ["make", "-s", "-C", str(ROOT), f"VENV={tmp_path / 'venv'}", "setup", *settings]
    done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
    assert done.returncode != 0
    error, hint = done.stderr.splitlines()[:2]
    assert error == f"error: {said}" and hint.startswith("hint: ")
    assert not (tmp_path / "venv").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX make")
def test_make_without_a_network_says_so_last(tmp_path: Path) -> None:
    environment = plain_environment() | {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    command = ["make", "-s", "-C", str(ROOT), f"VENV={tmp_path / 'venv'}", "setup"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL
    )
    assert done.returncode != 0
    assert "No matching distribution found" in done.stderr
    hints = [line for line in done.stderr.splitlines() if line.startswith("hint: ")]
    assert hints and "pip has no network" in hints[-1]


def plain_environment() -> dict[str, str]:
    """Return the environment without what a make or a pip around these tests has put into it."""
    ours = ("MAKE", "MFLAGS", "PIP_", "VIRTUAL_ENV", "CXX")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)}
