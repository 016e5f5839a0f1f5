"""What people download: all that is needed, nothing else, and audited."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = "inferno/server/static/"

# Where a file of an sdist may lie. The sources of the page are in it, though it is made already.
SDIST = re.compile(
    r"PKG-INFO|pyproject\.toml|CMakeLists\.txt|README\.md|LICENSE|_build/\w+\.py"
    r"|native/(CMakeLists\.txt|[\w/]+(\.inl)?\.(h|cpp|txt))"
    r"|src/inferno/([\w/]+\.pyi?|py\.typed|server/static/.+)"
    r"|web/(index\.html|package(-lock)?\.json|tsconfig\.json|vite\.config\.ts|(src|public)/.+)"
)
# And of a wheel.
PACKAGE = re.compile(
    r"inferno/([\w/]+\.py|_native\.pyi|_native\.abi3\.so|py\.typed)"
    r"|inferno/server/static/(index\.html|flame\.svg|licenses\.md|assets/[\w-]+\.(js|css))"
)
METADATA = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}

has_page = pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm to build it")


@pytest.fixture(scope="module")
def in_sdist(sdist: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                found[member.name.partition("/")[2]] = file.read()
    return found


@pytest.fixture(scope="module")
def in_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def split(in_wheel: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files of the package, and those of its metadata by their names in its folder."""
    package = {name: data for name, data in in_wheel.items() if ".dist-info/" not in name}
    metadata = {
        name.partition(".dist-info/")[2]: data
        for name, data in in_wheel.items()
        if ".dist-info/" in name
    }
    return package, metadata


def test_an_sdist_has_what_is_built_and_nothing_else(in_sdist: dict[str, bytes]) -> None:
    assert [name for name in in_sdist if not SDIST.fullmatch(name)] == []
    assert {"LICENSE", "_build/backend.py", "native/CMakeLists.txt"} <= in_sdist.keys()


def test_an_sdist_has_the_tree_byte_for_byte(in_sdist: dict[str, bytes]) -> None:
    """So that a wheel built from it is the wheel that is built from the tree."""
    compiled = [path for path in ROOT.glob("native/**/*") if path.suffix in (".h", ".cpp", ".txt")]
    packaged = [
        path
        for path in ROOT.glob("src/inferno/**/*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    ]
    tree = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in compiled + packaged}
    assert tree.keys() == {name for name in in_sdist if name.startswith(("native/", "src/"))}
    assert [name for name in tree if tree[name] != in_sdist[name]] == []


def test_a_wheel_has_the_package_the_licence_and_nothing_else(in_wheel: dict[str, bytes]) -> None:
    package, metadata = split(in_wheel)
    assert [name for name in package if not PACKAGE.fullmatch(name)] == []
    assert metadata.keys() == METADATA
    assert metadata["licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_a_wheel_has_every_module_as_it_is_in_the_sdist(
    in_sdist: dict[str, bytes], in_wheel: dict[str, bytes]
) -> None:
    sources = {
        name.removeprefix("src/"): data
        for name, data in in_sdist.items()
        if name.startswith("src/")
    }
    package = {name: data for name, data in split(in_wheel)[0].items() if not name.endswith(".so")}
    assert package == sources


@has_page
def test_both_have_the_page(in_sdist: dict[str, bytes], in_wheel: dict[str, bytes]) -> None:
    index = in_wheel[f"{PAGE}index.html"].decode()
    assert in_sdist[f"src/{PAGE}index.html"].decode() == index
    named = re.findall(r'"/(assets/[^"]+)"', index)
    assert named and all(f"{PAGE}{name}" in in_wheel for name in named)


@has_page
def test_the_licences_of_what_the_page_bundles_go_with_it(in_wheel: dict[str, bytes]) -> None:
    licences = in_wheel[f"{PAGE}licenses.md"].decode()
    for name in ("react", "react-dom", "react-markdown", "katex", "highlight.js"):
        assert re.search(rf"^## {re.escape(name)} - .*\((MIT|BSD-3-Clause)\)$", licences, re.M), (
            name
        )


def test_a_wheel_is_for_every_python_that_it_says(wheel: Path, in_wheel: dict[str, bytes]) -> None:
    """One wheel a platform: the stable ABI of the oldest Python that is supported."""
    metadata = message_from_string(split(in_wheel)[1]["METADATA"].decode())
    major, minor = re.findall(r"\d+", str(metadata["Requires-Python"]))
    assert f"-cp{major}{minor}-abi3-" in wheel.name
    audit = [sys.executable, "-m", "abi3audit", "--strict", "--report", str(wheel)]
    done = subprocess.run(audit, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"is_abi3": true' in done.stdout and '"non_abi3_symbols": []' in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is of Linux")
def test_a_wheel_links_to_nothing_that_a_linux_may_lack(wheel: Path) -> None:
    """The C and C++ libraries of the system, in versions that a manylinux tag names."""
    audit = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(audit, capture_output=True, text=True)
    assert re.search(
        r'consistent with\s+the following platform tag: "manylinux_2_\d+_', done.stdout
    )


def test_a_wheel_is_laid_out_as_wheels_are(wheel: Path) -> None:
    check = [sys.executable, "-m", "check_wheel_contents", str(wheel)]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_names_of_its_commands_are_those_that_runners_look_for(
    in_wheel: dict[str, bytes],
) -> None:
    """`pipx run NAME` and `uvx NAME` run the command that is called as the package is."""
    metadata = split(in_wheel)[1]
    name = message_from_string(metadata["METADATA"].decode())["Name"]
    commands = metadata["entry_points.txt"].decode()
    assert f"\n{name} = inferno.cli:main" in commands
    assert "\ninferno = inferno.cli:main" in commands
