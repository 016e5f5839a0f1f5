"""Contenders: this engine, and the peer's protocol with a llama.cpp made of paper."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import engines
from inferno import InvalidOption
from inferno.bench.contenders import Inferno, LlamaCpp, Prompt

# What the peer calls of llama-cpp-python's C interface. It insists that a context is not overrun.
PAPER = """
import types
__version__ = "0.paper"
llama_token = __import__("ctypes").c_int32
def llama_log_callback(f): return f
def llama_log_set(*_): pass
def llama_backend_init(): pass
def llama_model_default_params(): return types.SimpleNamespace()
def llama_context_default_params(): return types.SimpleNamespace()
def llama_model_load_from_file(path, params): return path if b"missing" not in path else None
def llama_init_from_model(model, params):
    return types.SimpleNamespace(params=params, used=0)
def llama_get_memory(state): return state
def llama_memory_clear(state, data): state.used = 0
def llama_batch_get_one(tokens, count): return count
def llama_decode(state, count):
    state.used += count
    return 0 if state.used <= state.params.n_ctx else 1
def llama_get_logits(state): pass
def llama_print_system_info(): return b"AVX2 = 1 | AVX512_VNNI = 0 | "
def llama_model_get_vocab(model): return model
def llama_vocab_n_tokens(vocab): return 77
"""


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "llama_cpp.py").write_text(PAPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Path(sys.executable)


def test_the_peer_says_what_it_is_and_answers_seconds(paper: Path) -> None:
    peer = LlamaCpp(paper, Path("model.gguf"), threads=2, context=20)
    assert (peer.name, peer.vocab_size) == ("llama.cpp avx2", 77)
    assert peer.version == "llama-cpp-python 0.paper"
    for _ in range(3):  # the cache is cleared each time, or it would overrun
        tokens, seconds = peer.prefill(Prompt([1] * 20))
        assert tokens == 20 and 0 <= seconds < 60
        tokens, seconds = peer.decode(Prompt([1] * 10), [2] * 9)
        assert tokens == 9 and 0 <= seconds < 60
    peer.close()


def test_a_peer_that_cannot_load_the_file_is_an_error_with_its_words(paper: Path) -> None:
    with pytest.raises(InvalidOption, match="could not load the model"):
        LlamaCpp(paper, Path("missing.gguf"), threads=2, context=20)


def test_a_peer_that_dies_in_mid_run_is_an_error(paper: Path) -> None:
    peer = LlamaCpp(paper, Path("model.gguf"), threads=2, context=20)
    with pytest.raises(InvalidOption, match="llama_decode failed"):
        peer.prefill(Prompt([1] * 21))


def test_inferno_starts_each_run_from_an_empty_cache(tmp_path: Path) -> None:
    engine = engines.load(engines.tiny_gguf(tmp_path / "m.gguf", context=64), context=64)
    ours = Inferno(engine)
    for _ in range(3):
        assert ours.prefill(Prompt([1] * 64)).tokens == 64
        assert ours.decode(Prompt([1] * 40), [2] * 24).tokens == 24
