"""Fixtures: a server that all tests share, and the same model asked from Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import engines
import servers
from inferno import Engine


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("server") / "tiny.gguf"
    return engines.tiny_gguf(path, format="q4_0", context=1024)


@pytest.fixture(scope="session")
def alone(model: Path) -> Engine:
    """The model, asked from Python: one text at a time, and nothing is kept."""
    return engines.load(model)


@pytest.fixture(scope="session")
def server(model: Path) -> Iterator[servers.Running]:
    with servers.running(lambda: servers.load_engine(model)) as it:
        yield servers.wait_until_loaded(it)
