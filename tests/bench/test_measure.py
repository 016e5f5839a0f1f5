"""Turns, warm-up and ratios, with contenders that keep a diary instead of computing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inferno.bench.contenders import Prompt, Timing
from inferno.bench.measure import Rates, Workload, random_ids, run


class Scripted:
    """A contender that takes as long as it is told."""

    version = clock = ""

    def __init__(
        self,
        name: str,
        seconds: Sequence[float],
        diary: list[tuple[str, tuple]],
        uncounted: int = 0,
    ) -> None:
        self.name, self.vocab_size = name, 50
        self._seconds, self._diary, self._uncounted = iter(seconds), diary, uncounted

    def prefill(self, prompt: Prompt) -> Timing:
        self._diary.append((self.name, (tuple(prompt.ids),)))
        return Timing(len(prompt.ids) - self._uncounted, next(self._seconds))

    def decode(self, prompt: Prompt, ids: Sequence[int]) -> Timing:
        self._diary.append((self.name, (tuple(prompt.ids), tuple(ids))))
        return Timing(len(ids) - self._uncounted, next(self._seconds))

    def close(self) -> None:
        raise AssertionError("not a part of a run")


def test_contenders_take_turns_on_the_same_ids_and_new_ones_each_run() -> None:
    diary: list[tuple[str, tuple]] = []
    pair = [Scripted("a", [1] * 4, diary), Scripted("b", [1] * 4, diary)]
    run(pair, Workload(prompt=6), random_ids(50), runs=3)
    assert [name for name, _ in diary] == ["a", "b"] * 4
    prompts = [what[0] for _, what in diary]
    assert prompts[::2] == prompts[1::2]
    assert len(set(prompts[::2])) == 4
    assert all(len(p) == 6 and all(0 <= i < 50 for i in p) for p in prompts)


def test_the_first_run_warms_up_and_does_not_count() -> None:
    (rates,) = run([Scripted("a", [100, 2, 1, 4], [])], Workload(prompt=8), random_ids(50), runs=3)
    assert rates.runs == (4.0, 8.0, 2.0)
    assert (rates.median, rates.least, rates.most) == (4.0, 2.0, 8.0)


def test_rates_are_of_the_tokens_that_each_engine_counts() -> None:
    pair = [Scripted("a", [1, 2.0], []), Scripted("b", [1, 2.0], [], uncounted=2)]
    ours, theirs = run(pair, Workload(prompt=8), random_ids(50), runs=1)
    assert (ours.runs, ours.tokens) == ((4.0,), (8,))
    assert (theirs.runs, theirs.tokens) == ((3.0,), (6,))


def test_the_deviation_is_the_samples() -> None:
    assert Rates((2.0, 4.0, 6.0)).deviation == 2.0
    assert Rates((3.0,)).deviation == 0.0


def test_a_decode_at_depth_zero_has_one_token_before_it() -> None:
    diary: list[tuple[str, tuple]] = []
    run([Scripted("a", [1, 1], diary)], Workload(generate=5), random_ids(50), runs=1)
    run([Scripted("a", [1, 1], diary)], Workload(generate=5, depth=9), random_ids(50), runs=1)
    assert [(len(context), len(ids)) for _, (context, ids) in diary] == [(1, 5)] * 2 + [(9, 5)] * 2


def test_ratios_are_of_pairs_and_not_of_medians() -> None:
    # The machine is slow in the second run: the pairs do not notice.
    assert Rates((10.0, 1.0, 12.0)).over(Rates((5.0, 0.5, 6.0))) == 2.0


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (Workload(prompt=512), "pp512"),
        (Workload(generate=64), "tg64"),
        (Workload(generate=64, depth=1500), "tg64 @ d1500"),
    ],
)
def test_workloads_are_called_as_llama_bench_does(workload: Workload, name: str) -> None:
    assert workload.name == name
