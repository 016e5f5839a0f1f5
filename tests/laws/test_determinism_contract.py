"""The whole contract at once: one text, whatever it took to make it.

{instruction set} x {threads} x {chunking of the prompt} x {how the cache came to be} x
{speculation} x {company in the same passes}, and for each type of cache a part of these, each
against the scalar kernels on one thread, alone, from an empty cache, without guesses. Compared are
the pieces of text, the ids, their log probabilities, and the bytes of the logits after them.
`test_one_arithmetic.py` takes the same apart for every format.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engines
from inferno import Engine, Session, _native
from inferno.generation import Generation
from inferno.options import SamplingParams
from inferno.speculation import Drafter

ISAS = _native.isas()
THREADS = (1, 2, 3)
CHUNKS = (256, 1, 7, 64)  # 256 holds the whole prompt
CACHES = ("cold", "warm", "forked", "truncated", "shared")
SPECULATIONS = ("off", "on", "wrong")
COMPANIES = ("alone", "with three others")

# The likely tokens are few, so that runs repeat and guesses are sometimes right.
LIKELY = (5, 17, 90)
PARAMS = SamplingParams(
    temperature=1.0,
    seed=4,
    max_tokens=16,
    ignore_eos=True,
    logit_bias=dict.fromkeys(LIKELY, 6.0),
    repetition_penalty=1.05,
    frequency_penalty=0.01,
    logprobs=2,
)
PROMPT = [*engines.random_ids(58), *LIKELY, LIKELY[0], *LIKELY, 3, LIKELY[0], *LIKELY]  # 70 ids
PREFIX = 45  # of a cache that is not cold


class Company:
    """Stands for the executor: each of our passes has three other sequences in it."""

    def __init__(self, engine: Engine) -> None:
        self._executor = engine._executor
        self._caches = [_native.KvCache(engine._loaded.pages) for _ in range(3)]
        self._ids = np.array(engines.random_ids(5, seed=9), np.int32)

    def forward(self, batch: Any) -> Any:
        [(cache, ids, wanted)] = batch
        for other in self._caches:
            other.truncate(min(len(other), 11))
        before, after, silent = self._caches
        logits = self._executor.forward(
            [
                (before, self._ids[:3], "all"),
                (cache, ids, wanted),
                (after, self._ids[:1], "last"),
                (silent, self._ids, "none"),
            ]
        )
        return logits[3:-1]


def in_company(company: Company, session: Session, process: Any) -> Any:
    """Return `Session._process` with the company's passes in place of ours."""

    def _process(self: Session, *args: Any, **options: Any) -> Any:
        if self is not session:
            return process(self, *args, **options)
        executor, self._engine._executor = self._engine._executor, company  # type: ignore[assignment]
        try:
            return process(self, *args, **options)
        finally:
            self._engine._executor = executor

    return _process


def wrong(self: Drafter, ids: Sequence[int], index: Any, limit: int) -> list[int]:
    """Guess three tokens that are unlikely to come."""
    return [(7 * id + 1) % 90 for id in ids[-3:]][: max(0, limit)]


def prepared(engine: Engine, cache: str, prompt: Sequence[int], prefix: int) -> Session:
    """Return a session that holds a part of the prompt, arrived at in the way `cache` says."""
    session = engine.new_session()
    if cache == "cold":
        return session
    other = engines.random_ids(12, seed=3)
    if cache == "shared":  # another conversation began alike
        engine.prefix_cache.capacity = 1 << 30
        engine.new_session().feed([*prompt[:prefix], *other])
        return session
    if cache == "truncated":
        session.feed([*prompt[: prefix - 3], *other])
        session.truncate(prefix - 3)
        session.feed(prompt[prefix - 3 : prefix])
        return session
    session.feed(prompt[:prefix])
    if cache == "forked":
        parent, session = session, session.fork()
        parent.feed(other)  # writes into what is shared
    return session


def seen(
    engine: Engine,
    prompt: Sequence[int],
    prefix: int,
    params: SamplingParams,
    chunk: int,
    cache: str,
    speculation: str,
    company: str,
) -> tuple[tuple[Any, ...], int]:
    """Generate, and return what can be seen of it, and how many guesses were right."""
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("inferno.session.PREFILL_ROWS", chunk)
        session = prepared(engine, cache, prompt, prefix)
        if company != "alone":
            process = in_company(Company(engine), session, Session._process)
            patch.setattr(Session, "_process", process)
        if speculation == "wrong":
            patch.setattr(Drafter, "draft", wrong)
        mode = "off" if speculation == "off" else "auto"
        generation = Generation(session, params.merged(speculation=mode), prompt)
        pieces = tuple(generation)
        logits = session.logits().tobytes()
    engine.prefix_cache.capacity = 0
    stats = generation.stats
    assert stats.cached_tokens == (0 if cache == "cold" else prefix)
    assert speculation != "wrong" or stats.drafted > 3 * stats.accepted
    return (pieces, generation.tokens, generation.logprobs, logits), stats.accepted


def every_way() -> Iterator[tuple[int, str, str, str]]:
    return itertools.product(CHUNKS, CACHES, SPECULATIONS, COMPANIES)


def shuffled_ways() -> list[tuple[int, str, str, str]]:
    """List every way in an order in which neighbours differ in everything."""
    ways = list(every_way())
    return [ways[29 * i % len(ways)] for i in range(len(ways))]  # 29 is prime to their number, 120


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return engines.tiny_gguf(tmp_path_factory.mktemp("contract") / "m.gguf", format="q4_0")


def test_every_way_to_a_text_gives_the_same_bytes(model: Path, record_property: Any) -> None:
    began = time.perf_counter()
    specification = engines.load(model, isa="scalar")
    expected, _ = seen(specification, PROMPT, PREFIX, PARAMS, 256, "cold", "off", "alone")
    assert len(expected[1]) == PARAMS.max_tokens
    ways = accepted = 0
    for isa, threads in itertools.product(ISAS, THREADS):
        engine = engines.load(model, isa=isa, threads=threads)
        for way in every_way():
            found, right = seen(engine, PROMPT, PREFIX, PARAMS, *way)
            assert found == expected, (isa, threads, *way)
            ways, accepted = ways + 1, accepted + right
    assert ways == len(ISAS) * 3 * 4 * 5 * 3 * 2
    assert accepted >= 4 * ways / len(SPECULATIONS)  # right guesses, where there were any
    report(record_property, ways, began)


@pytest.mark.parametrize("kv_cache", _native.cache_types()[1:])
def test_ways_to_a_text_give_the_same_bytes_with_another_cache(
    tmp_path: Path, kv_cache: str, record_property: Any
) -> None:
    """A twelfth of the ways for each instruction set and number of threads, others each time."""
    began = time.perf_counter()
    # A head of one whole block of 32 and a quarter.
    path = engines.tiny_gguf(tmp_path / "m.gguf", format="q4_0", head_dim=40)
    options = {"kv_cache": kv_cache}
    specification = engines.load(path, isa="scalar", **options)
    expected, _ = seen(specification, PROMPT, PREFIX, PARAMS, 256, "cold", "off", "alone")
    default, _ = seen(engines.load(path), PROMPT, PREFIX, PARAMS, 256, "cold", "off", "alone")
    assert default[-1] != expected[-1]  # the logits, where the cache is another
    ways = 0
    for number, (isa, threads) in enumerate(itertools.product(ISAS, THREADS)):
        engine = engines.load(path, isa=isa, threads=threads, **options)
        for way in shuffled_ways()[number::12]:
            found, _ = seen(engine, PROMPT, PREFIX, PARAMS, *way)
            assert found == expected, (isa, threads, *way)
            ways += 1
    report(record_property, ways, began)


@pytest.mark.real_model
def test_ways_to_a_text_of_the_default_model_give_the_same_bytes(
    record_property: Any,
) -> None:
    """Each instruction set, number of threads, and the rest at least once; the slow one once."""
    began = time.perf_counter()
    path = engines.default_model()
    prompt = [*engines.random_ids(4, 49_152), 11, 12, 13, 11, 12]
    params = PARAMS.merged(max_tokens=5, logit_bias=dict.fromkeys((11, 12, 13), 25.0))
    order = shuffled_ways()
    runs = [
        (isa, threads, way)
        for i, (isa, threads) in enumerate(itertools.product(ISAS, THREADS))
        for way in order[2 * i : 2 * i + 2]
        if isa != "scalar"
    ]
    runs.append(("scalar", 2, (7, "forked", "on", "alone")))
    engine, expected = None, None
    for isa, threads, way in runs:
        if engine is None or (engine.isa, engine.threads) != (isa, threads):
            engine = engines.load(path, isa=isa, threads=threads, context=128)
        if expected is None:
            expected, _ = seen(engine, prompt, 7, params, 256, "cold", "off", "alone")
        found, _ = seen(engine, prompt, 7, params, *way)
        assert found == expected, (isa, threads, *way)
    ways = len(runs)
    report(record_property, ways, began)


def report(record_property: Any, ways: int, began: float) -> None:
    seconds = time.perf_counter() - began
    record_property("seconds", round(seconds, 1))
    print(f"{ways} ways to the same bytes in {seconds:.1f} s")
