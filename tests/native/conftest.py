"""One thread is enough wherever threads are not the question."""

from __future__ import annotations

import pytest

from inferno import _native


@pytest.fixture(scope="session")
def pool() -> _native.ThreadPool:
    return _native.ThreadPool(1)
