"""The random numbers of the sampler: Philox4x32-10, keyed by (seed, position, choice)."""

from __future__ import annotations

import numpy as np
import pytest

from inferno import _native

testing = _native.testing

WORD = 0xFFFFFFFF


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Encrypt four words with two: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"."""
    for _ in range(10):
        high0, low0 = divmod(counter[0] * 0xD2511F53, 2**32)
        high1, low1 = divmod(counter[2] * 0xCD9E8D57, 2**32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) & WORD, (key[1] + 0xBB67AE85) & WORD]
    return counter


def words(number: int) -> list[int]:
    return [number & WORD, number >> 32]


def number(low: int, high: int) -> int:
    return high << 32 | low


# Of the file kat_vectors of Random123: counter, key, and the words of the answer.
KNOWN_ANSWERS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([WORD] * 4, [WORD] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS, ids=["zeros", "ones", "pi"])
def test_known_answers(counter: list[int], key: list[int], answer: list[int]) -> None:
    assert philox(counter, key) == answer
    actual = testing.uniform(number(*key), number(*counter[:2]), number(*counter[2:]))
    assert actual == (number(answer[1], answer[0]) >> 11) / 2**53


def test_uniform_is_53_bits_of_philox() -> None:
    rng = np.random.default_rng(0)
    for seed, position, choice in rng.integers(0, 2**64, (300, 3), np.uint64).tolist():
        high, low, *_ = philox(words(position) + words(choice), words(seed))
        expected = (number(low, high) >> 11) / 2**53
        assert testing.uniform(seed, position, choice) == expected


def test_seed_position_and_choice_all_matter() -> None:
    draws = [testing.uniform(s, p, c) for s in range(8) for p in range(8) for c in range(8)]
    assert len(set(draws)) == len(draws)
    assert all(0 <= draw < 1 for draw in draws)
