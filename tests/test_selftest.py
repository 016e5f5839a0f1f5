"""The self-test that `inferno doctor` runs: it passes here, and it can fail."""

from __future__ import annotations

import numpy as np
import pytest

from inferno import _native, selftest


def test_every_instruction_set_computes_the_same_bits() -> None:
    names, used = selftest.isas()
    assert used in names
    assert selftest.same_bits(names) == dict.fromkeys(names, True)


def test_a_wrong_bit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = selftest._logits
    best = _native.isas()[0]

    def tampered(isa: str, format: str, kv_cache: str = "f16") -> np.ndarray:
        found = logits(isa, format, kv_cache)
        if (isa, format) == (best, "q8_0"):
            found.view(np.uint32)[-1, -1] ^= 1
        return found

    monkeypatch.setattr(selftest, "_logits", tampered)
    if best != "scalar":
        assert selftest.same_bits([best, "scalar"]) == {best: False, "scalar": True}


def test_the_logits_are_numbers_that_tell_tokens_apart() -> None:
    for format, *_ in _native.formats():
        logits = selftest._logits("scalar", format)
        assert np.isfinite(logits).all()
        assert len(np.unique(logits[-1])) > 80
