"""Fixtures: tiny checkpoints, built once a session, and the instruction sets of this machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

# Whatever the import mode, tests say `from reference import ...` and `import checkpoints`.
TESTS = Path(__file__).parent
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

# A build beside the installed one stands in PYTHONPATH: the editable install must not be first.
if "INFERNO_BESIDE" in os.environ:
    sys.meta_path = [f for f in sys.meta_path if "editable" not in type(f).__module__]


def isas() -> list[str]:
    """List the instruction sets the native core can run here; [] while it is not built."""
    try:
        from inferno._native import isas as native_isas
    except ImportError:
        return []
    return list(native_isas() if callable(native_isas) else native_isas)


needs_native = pytest.mark.skipif(not isas(), reason="the native core is not built")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_model: needs a downloaded model; run one at a time")


@pytest.fixture(params=isas() or [pytest.param("none", marks=needs_native)])
def isa(request: pytest.FixtureRequest) -> str:
    """Run the test once for every instruction set."""
    return str(request.param)


@pytest.fixture(scope="session")
def llama_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny float32 Llama of safetensors, head of its own."""
    import checkpoints

    return checkpoints.tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def qwen2_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny bfloat16 Qwen2 of safetensors in several files, head tied to the embedding."""
    import checkpoints

    path = tmp_path_factory.mktemp("tiny-qwen2")
    return checkpoints.tiny_qwen2(path, ties=True, dtype="bfloat16", shards=3)


@pytest.fixture(scope="session")
def llama_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tensors of `llama_directory` as GGUF, f32, byte-level tokenizer. Needs no torch."""
    import checkpoints

    config = checkpoints.tiny_config("llama")
    path = tmp_path_factory.mktemp("gguf") / "tiny-llama.gguf"
    return checkpoints.gguf_llama(path, config, checkpoints.random_tensors(config))


@pytest.fixture(scope="session")
def stories_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K as GGUF, f32, SentencePiece-style tokenizer. Needs no torch."""
    import checkpoints

    return checkpoints.stories260k(tmp_path_factory.mktemp("gguf") / "stories260K.gguf")


@pytest.fixture(scope="session")
def stories_greedy() -> dict[str, Any]:
    """The `ids` (BOS and 200 more) and `text` that stories260K must produce greedily."""
    return dict(json.loads((TESTS / "data/stories260K.greedy.json").read_text("utf-8")))


@pytest.fixture(scope="session")
def prose() -> str:
    """A passage of English, a little over 500 tokens."""
    return (TESTS / "data/prose.txt").read_text("utf-8")
