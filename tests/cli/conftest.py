"""A parrot in the place of the engine, and a standard input to fill."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path

import pytest

import inferno

FAKE_INFERNO = Path(__file__).with_name("fake_inferno.py")


@pytest.fixture(scope="session")
def parrot():
    specification = importlib.util.spec_from_file_location("fake_inferno", FAKE_INFERNO)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def engine(parrot, monkeypatch, tmp_path):
    """The class that stands for `inferno.Engine`; `loads` and `calls` say what was asked of it."""
    monkeypatch.setattr(inferno, "Engine", parrot.FakeEngine, raising=False)
    monkeypatch.setattr(parrot.FakeEngine, "loads", [])
    monkeypatch.setattr(parrot.FakeEngine, "calls", [])
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    return parrot.FakeEngine


@pytest.fixture
def stdin(monkeypatch):
    """Call it with bytes to put them on standard input."""

    def fill(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    fill(b"")
    return fill
