"""Fixtures: a tiny model where the documents name one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferno import hub
from inferno.catalogue import CATALOGUE


@pytest.fixture
def let_names_mean(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Call it with the file that all names of the catalogue then mean."""

    def let(path: Path) -> None:
        for name in ("resolve", "find"):
            ask = getattr(hub, name)

            def substitute(model: Any, _ask: Any = ask, **options: Any) -> Path:
                return path if model in CATALOGUE else _ask(model, **options)

            monkeypatch.setattr(hub, name, substitute)

    return let


@pytest.fixture
def named_models(let_names_mean: Callable[[Path], None], stories_gguf: Path) -> None:
    """Let the names of the catalogue mean a tiny model that tells stories."""
    let_names_mean(stories_gguf)
