"""Prompts that are text, for engines that take nothing else.

So many tokens, and no beginning that an earlier prompt had.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from inferno.bench.contenders import Contender, Prompt
from inferno.bench.measure import PromptSource, random_ids, smallest_vocabulary

if TYPE_CHECKING:
    from inferno.engine import Engine

# Short and common: most vocabularies have most of them, with the space before, as one token.
WORDS = (
    "the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are",
    "as", "with", "his", "they", "at", "be", "this", "have", "from", "or", "one", "had", "by",
    "word", "but", "not", "what", "all", "were", "we", "when", "your", "can", "said", "there",
    "use", "an", "each", "which", "she", "do", "how", "their", "if", "will", "up", "other",
    "about", "out", "many", "then", "them", "these", "so", "some", "her", "would", "make", "like",
    "him", "into", "time", "has", "look", "two", "more", "write", "go", "see", "number", "no",
    "way", "could", "people", "my", "than", "first", "water",
)  # fmt: skip

ATTEMPTS = 100  # of words that did not fit


def prompts_for(contenders: Sequence[Contender], engine: Engine) -> PromptSource:
    """Return a source of ids; or of texts, for all, if one of the contenders takes nothing else."""
    if any(contender.vocab_size is None for contender in contenders):
        return random_texts(engine._prompt_ids)
    return random_ids(smallest_vocabulary(contenders))


def random_texts(encode: Callable[[str], list[int]]) -> PromptSource:
    """Return a source of texts that `encode` (BOS and all) cuts into as many tokens as asked for.

    Each begins with a nonce: engines keep what they computed for a prefix, and not all can be told
    to forget it. Where the nonce alone is longer than asked, or no word fits the rest, the number
    of tokens is another; every engine reports its own count.
    """

    def prompt(draw: random.Random, tokens: int) -> Prompt:
        text = secrets.token_hex(4)  # new in every process, for a server outlives ours
        ids = encode(text)
        attempts = 0
        while (missing := tokens - len(ids)) > 0 and attempts < ATTEMPTS:
            # A word is one token or a few: half of what is missing never overshoots by much.
            words = draw.choices(WORDS, k=max(1, missing // 2) if attempts == 0 else 1)
            longer = " ".join([text, *words])
            cut = encode(longer)
            if len(cut) <= tokens:
                text, ids, attempts = longer, cut, 0
            else:
                attempts += 1
        return Prompt(ids, text)

    return prompt
