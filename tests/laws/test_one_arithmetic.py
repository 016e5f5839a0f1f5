"""The determinism contract, as equality of bytes.

Logits depend on the weights and the ids alone: not on the instruction set, the number of threads,
how the ids were cut into forward passes, what of them was cached and how it came to be, or which
other sequences shared the pass. One run of the scalar kernels with one thread is the specification.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import architectures
import engines
from inferno import Engine, _native
from reference import quantization

ISAS = _native.isas()
THREADS = (1, 2, 3)
FORMATS = [name for name, *_ in _native.formats()]
# Windows, softcaps and norms of rows; experts, sinks and biases; experts and norms of heads.
ARCHITECTURES = ("gemma2", "gpt_oss", "qwen3_moe")
CACHES = ("cold", "warm", "forked", "truncated")
STEPS = (0, 1, 7, 64)  # ids a forward pass; 0 for all at once

IDS = engines.random_ids(70)  # six beyond a page of the cache
PREFIX = 45  # of a cache that is not cold

each_isa = pytest.mark.parametrize("isa", ISAS)
each_format = pytest.mark.parametrize("format", FORMATS)


class Company:
    """Other sequences in the same forward passes: one before ours, two after."""

    def __init__(self, engine: Engine) -> None:
        self._ids = engines.random_ids(5, seed=9)
        self._caches = [_native.KvCache(engine._loaded.pages) for _ in range(3)]

    def around(self, ours: Any) -> tuple[list[Any], int]:
        """Return a batch with `ours` in it, and how many rows of logits come before ours."""
        ids = np.array(self._ids, np.int32)
        before, after, silent = self._caches
        return [(before, ids[:3], "all"), ours, (after, ids[:1], "last"), (silent, ids, "none")], 3


def forward(
    engine: Engine,
    cache: _native.KvCache,
    ids: Sequence[int],
    step: int = 0,
    company: Company | None = None,
) -> bytes:
    """Process ids `step` at a time and return the logits of each."""
    executor, found = engine._executor, []
    for start in range(0, len(ids), step or len(ids)):
        chunk = np.array(ids[start : start + step] if step else ids, np.int32)
        batch, first = [(cache, chunk, "all")], 0
        if company is not None:
            batch, first = company.around(batch[0])
        logits = executor.forward(batch)
        found.append(logits[first : first + len(chunk)].tobytes())
    return b"".join(found)


def prepared_cache(engine: Engine, kind: str, ids: Sequence[int]) -> _native.KvCache:
    """Return a cache that holds `ids`, arrived at in the way `kind` says."""
    cache = _native.KvCache(engine._loaded.pages)
    if kind == "cold":
        return cache
    forward(engine, cache, ids)
    other = engines.random_ids(30, seed=3)
    if kind == "forked":
        parent, cache = cache, cache.fork()
        forward(engine, parent, other)  # writes into what is shared
    if kind == "truncated":
        forward(engine, cache, other)
        cache.truncate(len(ids))
    return cache


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny Llama with biases in each format; and models of other shapes, in one."""
    folder = tmp_path_factory.mktemp("models")
    models = {
        format: engines.tiny_gguf(folder / f"{format}.gguf", format=format, bias=True)
        for format in FORMATS
    }
    for model_type in ARCHITECTURES:
        directory = architectures.save(folder / model_type, model_type)
        path = folder / f"{model_type}.gguf"
        models[model_type] = architectures.save_gguf(path, directory, format="q8_0")
    return models


@pytest.mark.parametrize("kv_cache", _native.cache_types()[1:])
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_logits_are_the_same_bytes_with_another_cache(
    model_of: dict[str, Path], model: str, kv_cache: str
) -> None:
    specification = engines.load(model_of[model], isa="scalar", kv_cache=kv_cache).logits(IDS)
    for isa, threads in itertools.product(ISAS, (1, 3)):
        engine = engines.load(model_of[model], isa=isa, threads=threads, kv_cache=kv_cache)
        for kind, step, company in (("cold", 0, None), ("forked", 7, Company(engine))):
            prefix = 0 if kind == "cold" else PREFIX
            cache = prepared_cache(engine, kind, IDS[:prefix])
            found = forward(engine, cache, IDS[prefix:], step, company)
            assert found == specification[prefix:].tobytes(), (isa, threads, kind)


@pytest.mark.parametrize("model", [*FORMATS, *ARCHITECTURES])
@each_isa
def test_logits_are_the_same_bytes(model_of: dict[str, Path], model: str, isa: str) -> None:
    specification = engines.load(model_of[model], isa="scalar").logits(IDS)
    # Models of blocks of 256 are larger; what they share with the others need not be tried again.
    large = quantization.COLUMNS.get(model) == 256
    for threads in (1, 3) if large else THREADS:
        engine = engines.load(model_of[model], isa=isa, threads=threads)
        assert (engine.isa, engine.threads) == (isa, threads)
        caches, steps = (("cold", "forked"), (0, 7)) if large else (CACHES, STEPS)
        for kind, step, alone in itertools.product(caches, steps, (True, False)):
            cached = 0 if kind == "cold" else PREFIX
            cache = prepared_cache(engine, kind, IDS[:PREFIX])
            company = None if alone else Company(engine)
            found = forward(engine, cache, IDS[cached:], step, company)
            assert found == specification[cached:].tobytes(), (threads, kind, step, alone)


def test_the_specification_tells_ids_and_formats_apart(model_of: dict[str, Path]) -> None:
    """Equality above would be worth nothing if all logits were alike."""
    found = {format: engines.load(path).logits(IDS) for format, path in model_of.items()}
    assert len({logits.tobytes() for logits in found.values()}) == len(found)
    for logits in found.values():
        assert np.isfinite(logits).all()
        assert len({row.tobytes() for row in logits}) == len(IDS)


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one narrow layer, for contexts that are attended to in two splits of 512."""
    path = tmp_path_factory.mktemp("long") / "long.gguf"
    options = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "intermediate": 32}
    return engines.tiny_gguf(path, context=1024, format="q8_0", **options)


@each_isa
def test_logits_beyond_a_split_of_attention_are_the_same_bytes(long_model: Path, isa: str) -> None:
    ids = engines.random_ids(600)
    specification = engines.load(long_model, isa="scalar").logits(ids)
    for threads in THREADS:
        engine = engines.load(long_model, isa=isa, threads=threads)
        for step in (0, 7, 64):
            cache = _native.KvCache(engine._loaded.pages)
            assert forward(engine, cache, ids, step) == specification.tobytes(), (threads, step)
        for kind, alone in itertools.product(("forked", "truncated"), (True, False)):
            cache = prepared_cache(engine, kind, ids[:500])
            company = None if alone else Company(engine)
            found = forward(engine, cache, ids[500:530], 1, company)
            assert found == specification[500:530].tobytes(), (threads, kind, alone)


@each_isa
def test_the_public_ways_to_logits_agree(model_of: dict[str, Path], isa: str) -> None:
    """Engine.logits, feeding in pieces, cutting back and forking."""
    engine = engines.load(model_of["q8_0"], isa=isa, threads=2)
    specification = engine.logits(IDS)
    assert engines.logits_in_steps(engine, IDS, 1).tobytes() == specification.tobytes()
    session = engine.new_session()
    session.feed(IDS)
    session.truncate(50)
    assert session.logits().tobytes() == specification[49].tobytes()
    fork = session.fork()
    session.feed([1, 2, 3])
    fork.feed(IDS[50:])
    assert fork.logits().tobytes() == specification[-1].tobytes()


# ---- text ----------------------------------------------------------------------------------------

PROMPT = "the cat and the dog"
SAMPLING: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_tokens": 24, "ignore_eos": True}


@each_format
def test_sampled_tokens_depend_on_the_seed_alone(model_of: dict[str, Path], format: str) -> None:
    specification = engines.load(model_of[format], isa="scalar").generate(PROMPT, **SAMPLING).tokens
    assert len(specification) == SAMPLING["max_tokens"]
    for isa, threads in itertools.product(ISAS, THREADS):
        engine = engines.load(model_of[format], isa=isa, threads=threads)
        ids = engine.tokenizer.encode(PROMPT, special=True)

        cold = engine.generate(PROMPT, **SAMPLING).tokens
        session = engine.new_session()
        for id in ids:
            session.feed([id])
        fork = session.fork()
        fed = session.generate(**SAMPLING).tokens
        session.truncate(len(ids))
        again = session.generate(**SAMPLING).tokens
        forked = fork.generate(**SAMPLING).tokens
        assert {cold, fed, again, forked} == {specification}, (isa, threads)


def test_company_does_not_change_sampled_tokens(model_of: dict[str, Path]) -> None:
    """Eight seeds from four Python threads at once: each as it is alone."""
    engine = engines.load(model_of["q4_0"], threads=2)

    def tokens(seed: int) -> tuple[int, ...]:
        return engine.generate(PROMPT, **{**SAMPLING, "seed": seed}).tokens

    alone = [tokens(seed) for seed in range(8)]
    assert len(set(alone)) > 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokens, range(8))) == alone


# ---- the default model ---------------------------------------------------------------------------


@pytest.mark.real_model
def test_the_default_model_is_the_same_bytes_everywhere() -> None:
    path = engines.default_model()
    ids = engines.random_ids(9, 49_152)
    specification = None
    for isa in ISAS:
        engine = engines.load(path, isa=isa, threads=2, context=128)
        whole = engine.logits(ids)
        specification = whole if specification is None else specification
        assert whole.tobytes() == specification.tobytes(), isa
        if isa == ISAS[0]:
            assert engines.logits_in_steps(engine, ids, 1).tobytes() == whole.tobytes()
            cache = prepared_cache(engine, "forked", ids[:5])
            found = forward(engine, cache, ids[5:], 2, Company(engine))
            assert found == specification[5:].tobytes()


@pytest.mark.parametrize("hidden", [8, 16, 40, 48, 65, 100])
def test_a_row_ends_where_the_next_begins(tmp_path: Path, hidden: int) -> None:
    # Widths that are no multiple of a block: an embedding unpacked in whole blocks once ran into
    # the next token's row, which another thread had already written.
    path = engines.tiny_gguf(tmp_path / "m.gguf", hidden=hidden, heads=2, kv_heads=1, head_dim=8)
    ids = engines.random_ids(70)
    specification = engines.load(path, isa="scalar").logits(ids).tobytes()
    for threads in (1, 2, 3):
        engine = engines.load(path, threads=threads)
        assert {engine.logits(ids).tobytes() for _ in range(5)} == {specification}
