"""What building takes: a Python with its headers, a compiler of C++20.

`python _build/prerequisites.py` says what is missing and what to do; `make` asks before it begins, and
the build backend before CMake does. Read by Pythons that are too old for the package: no syntax here
is newer than Python 2.7.
"""

# ruff: noqa: UP

from __future__ import print_function

import os
import shlex
import subprocess
import sys
import sysconfig

COMPILERS = "g++ 11 or clang 15"
INSTALL = "install {} or newer (apt install g++; dnf install gcc-c++; xcode-select --install)"
# Its ABI must be that of Python's own compiler, whose library it uses; GCC is out (CMakeLists.txt).
WINDOWS_INSTALL = (
    "install LLVM (winget install LLVM.LLVM) and the C++ build tools of Visual Studio (winget "
    "install Microsoft.VisualStudio.2022.BuildTools, workload `Desktop development with C++`), "
    "or use WSL, which is Linux"
)

# What older compilers lack: the language's version, or `wait` and concepts in its library.
PROBE = b"""
#include <atomic>
#include <concepts>
template <std::integral T> int wait(std::atomic<T>& x) { x.wait(1); return 0; }
int main() { std::atomic<int> x{0}; return wait(x); }
"""


def missing(checks=None):
    """Return (error, hint) of the first thing that is missing, or None."""
    for check in checks or (python, environments, headers, compiler):
        found = check()
        if found is not None:
            return found
    return None


def python():
    if sys.version_info < (3, 10):
        return (
            "Python 3.10 or newer is needed, found {}.{}.{} ({})".format(
                *(tuple(sys.version_info[:3]) + (sys.executable,))
            ),
            "name another one: make PYTHON=/path/to/python3.12 ...",
        )
    return None


def environments():
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return (
            "{} makes no virtual environments ({})".format(sys.executable, error),
            "on Debian and Ubuntu, apt install python3-venv",
        )
    return None


def headers():
    folder = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(folder, "Python.h")):
        install = "apt install python3-dev (Debian, Ubuntu), or dnf install python3-devel (Fedora)"
        if sys.platform == "win32":
            install = "install Python from python.org or with `winget install Python.Python.3.12`"
        return "{} has no header files (Python.h in {})".format(sys.executable, folder), install
    return None


def compiler():
    """Compile a few lines of C++20 as CMake would: with $CXX, or else the first one there is."""
    import shutil

    is_windows = sys.platform == "win32"
    named = _named_compiler()
    if is_windows:
        found = [windows_clang()]
    else:
        found = [shutil.which(name) and name for name in ("c++", "g++", "clang++")]
    command = named or [name for name in found if name][:1]
    if not command or shutil.which(command[0]) is None:
        name = " (CXX is `{}`)".format(command[0]) if named else ""
        install = WINDOWS_INSTALL if is_windows else INSTALL.format(COMPILERS)
        return "no C++ compiler was found" + name, install
    flags = ["-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    if _run(command + flags, PROBE)[0] == 0:
        return None
    version = (_run([command[0], "--version"], b"")[1].splitlines() or ["version unknown"])[0]
    newer = "install {} or newer, and name it: CXX=/path/to/g++-12".format(COMPILERS)
    return (
        "`{}` does not compile C++20: {}".format(" ".join(command), version),
        WINDOWS_INSTALL if is_windows else newer,
    )


def _named_compiler():
    """Return the words of $CXX; a path of Windows is full of what a shell takes for others."""
    named = os.environ.get("CXX", "")
    if sys.platform != "win32":
        return shlex.split(named)
    return [named] if os.path.isfile(named) else shlex.split(named, posix=False)


def windows_clang():
    """Return LLVM's clang++, which its installer leaves out of the PATH; None if there is none."""
    import shutil

    installed = os.path.join(os.environ.get("PROGRAMFILES", ""), "LLVM", "bin", "clang++.exe")
    return shutil.which("clang++") or (installed if os.path.isfile(installed) else None)


def choose_for_windows():
    """Have CMake take that compiler, and a generator that can, unless somebody chose others."""
    found = windows_clang()
    if found is not None:
        os.environ.setdefault("CXX", found)
    os.environ.setdefault("CMAKE_GENERATOR", "Ninja")


def _run(command, text):
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output = process.communicate(text)[0]
    except OSError as error:
        return 1, str(error)
    return process.returncode, output.decode("utf-8", "replace")


def main():
    """Say what is missing, if anything is; return the exit code."""
    found = missing()
    if found is None:
        return 0
    print("error: {}\nhint: {}".format(*found), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
