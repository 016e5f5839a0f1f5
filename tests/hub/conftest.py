"""Caches of their own for each test, and a hub of paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub.fake_hub import FakeHub, running

PREPARED = ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`INFERNO_HOME`, and Ollama's folder beside it, both empty."""
    folder = tmp_path / "home"
    monkeypatch.setenv("INFERNO_HOME", str(folder))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    return folder


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache; the library read its variables when it was first imported."""
    from huggingface_hub import constants

    for name in PREPARED:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "huggingface"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port that discards
    return folder


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    from huggingface_hub import constants, file_download

    with running() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        # What is kept of a transfer are whole chunks; the library's are of 10 MB.
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
        # The library waits a second before it goes on with a transfer that broke off.
        monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda seconds: None))
        yield hub
