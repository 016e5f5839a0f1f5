"""What another library does to the floating-point modes of a thread changes no bit of ours.

Anything linked with -ffast-math flushes denormals to zero in the thread that loads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import checkpoints
import engines
from inferno import Engine, _native

testing = _native.testing

ROUND_DOWN = {"x86": 1 << 13, "arm": 2 << 22}  # of the rounding mode's two bits
MODES = [
    testing.FLUSHES,
    testing.FLUSHES | ROUND_DOWN["x86" if testing.FLUSHES == 0x8040 else "arm"],
]


@pytest.fixture(params=MODES, ids=["flushing", "flushing and rounding down"])
def mode(request: pytest.FixtureRequest) -> Iterator[int]:
    """Return a control word that another library might leave behind; tests set it."""
    before = testing.float_control()
    yield before | request.param
    testing.set_float_control(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose last norm makes everything after it denormal, logits too."""
    config = checkpoints.tiny_config("llama")
    tensors = checkpoints.random_tensors(config)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * np.float32(1e-39)
    path = tmp_path_factory.mktemp("denormal") / "m.gguf"
    return checkpoints.gguf_llama(path, config, tensors)


def answers(engine: Engine) -> list[bytes]:
    """Return what passes and samplers make of some ids; the modes must be as they were after it."""
    ids = engines.random_ids(20)
    before = testing.float_control()
    cache = _native.KvCache(engine._loaded.pages)
    batch = [(cache, np.array(ids, np.int32), "all")]
    found = [engine.logits(ids).tobytes(), engine._executor.forward_hidden(batch).tobytes()]
    found.append(repr(engine.generate(ids, max_tokens=8, seed=3).tokens).encode())
    assert testing.float_control() == before  # the other library gets its modes back
    return found


@pytest.mark.skipif(testing.FLUSHES == 0, reason="knows the modes of x86 and Arm")
@pytest.mark.parametrize("isa", _native.isas())
def test_modes_left_behind_change_no_bit(model: Path, mode: int, isa: str) -> None:
    engine = engines.load(model, isa=isa, threads=2)
    expected = answers(engine)
    logits = np.frombuffer(expected[0], np.float32)
    assert 0 < np.abs(logits).max() < np.finfo(np.float32).tiny
    testing.set_float_control(mode)
    assert answers(engine) == expected


@pytest.mark.skipif(testing.FLUSHES == 0, reason="knows the modes of x86 and Arm")
def test_a_model_loaded_while_denormals_are_flushed_is_the_same(model: Path) -> None:
    expected = answers(engines.load(model))
    testing.set_float_control(testing.float_control() | testing.FLUSHES)
    try:
        assert answers(engines.load(model)) == expected
    finally:
        testing.set_float_control(testing.float_control() & ~testing.FLUSHES)


@pytest.mark.skipif(testing.FLUSHES == 0, reason="knows the modes of x86 and Arm")
def test_the_modes_do_matter_to_a_kernel_without_protection(mode: int) -> None:
    pool = _native.ThreadPool(1)
    tiny = np.full(1, 1e-40, np.float32)
    one = np.ones((1, 1), np.float32)

    def product() -> float:
        data = tiny.view(np.uint8)
        return float(testing.matmul("scalar", pool, "f32", "f32", data, 1, one)[0, 0])

    before = testing.float_control()
    kept = product()
    testing.set_float_control(mode)
    flushed = product()
    testing.set_float_control(before)  # or all denormals would compare as zero
    assert (kept, flushed) == (pytest.approx(1e-40, rel=1e-3), 0.0)
