"""What building takes: a system, a Python with its headers, a compiler of C++20.

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

# What older compilers lack: the language's version, or `wait` and concepts in its library.
PROBE = b"""
#include <atomic>
#include <concepts>
template <std::integral T> int wait(std::atomic<T>& x) { x.wait(1); return 0; }
int main() { std::atomic<int> x{0}; return wait(x); }
"""


def missing(checks=None):
    """Return (error, hint) of the first thing that is missing, or None."""
    for check in checks or (system, python, environments, headers, compiler):
        found = check()
        if found is not None:
            return found
    return None


def system():
    if sys.platform == "win32":
        return "Windows is not supported yet", "use it in WSL, which is Linux (wsl --install)"
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
        return (
            "{} has no header files (Python.h in {})".format(sys.executable, folder),
            "apt install python3-dev (Debian, Ubuntu), or dnf install python3-devel (Fedora)",
        )
    return None


def compiler():
    """Compile a few lines of C++20 as CMake would: with $CXX, or else the first one there is."""
    import shutil

    named = shlex.split(os.environ.get("CXX", ""))
    command = named or [name for name in ("c++", "g++", "clang++") if shutil.which(name)][:1]
    install = "install {} or newer (apt install g++; dnf install gcc-c++; xcode-select --install)"
    if not command or shutil.which(command[0]) is None:
        name = " (CXX is `{}`)".format(command[0]) if named else ""
        return "no C++ compiler was found" + name, install.format(COMPILERS)
    flags = ["-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    if _run(command + flags, PROBE)[0] == 0:
        return None
    version = (_run([command[0], "--version"], b"")[1].splitlines() or ["version unknown"])[0]
    return (
        "`{}` does not compile C++20: {}".format(" ".join(command), version),
        "install {} or newer, and name it: CXX=/path/to/g++-12".format(COMPILERS),
    )


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
