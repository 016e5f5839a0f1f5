"""What `make wheel-test` has built, and the environment that it has installed the wheel into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _made(variable: str) -> Path:
    """Return the folder that `variable` of the environment names."""
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set: `make wheel-test` builds what is tested here")
    return Path(os.environ[variable]).resolve()


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="session")
def wheel() -> Path:
    return _only(_made("INFERNO_DISTRIBUTIONS"), "*.whl")


@pytest.fixture(scope="session")
def sdist() -> Path:
    return _only(_made("INFERNO_DISTRIBUTIONS"), "*.tar.gz")


@pytest.fixture(scope="session")
def installed() -> Path:
    """The environment's folder of commands."""
    return _made("INFERNO_INSTALLED") / "bin"
