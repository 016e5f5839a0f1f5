"""The merges of a BPE vocabulary: as a file lists them, or as the scores of its pieces imply."""

from __future__ import annotations

from collections.abc import Sequence

from inferno.errors import InvalidCheckpoint
from inferno.tokenizer.vocabulary import NORMAL

# Deriving merges tries every cut of every piece. Real vocabularies cost under 10 million steps.
MAX_MERGE_WORK = 1_000_000_000


def parsed_merges(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs that GGUF keeps with a space between."""
    merges = []
    for line in lines:
        left, space, right = line.partition(" ")
        if not space or not left or not right or " " in right:
            raise InvalidCheckpoint(
                f"`tokenizer.ggml.merges`: expected two pieces and a space, found {line[:64]!r}"
            )
        merges.append((left, right))
    return merges


def merges_by_score(
    texts: Sequence[str], kinds: Sequence[int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Return the merges that a SentencePiece BPE vocabulary implies, best first.

    SentencePiece joins the neighbours whose union has the highest score; ranking every cut of
    every piece by the score of the whole does the same. Only normal pieces take part: text must
    not merge into a control token or a `<0xNN>` piece. Source: transformers' `generate_merges`.
    """
    if not scores:
        raise InvalidCheckpoint("`tokenizer.ggml.scores` is missing: a llama tokenizer needs them")
    pieces = {
        text: score
        for text, kind, score in zip(texts, kinds, scores, strict=True)
        if kind == NORMAL
    }
    if sum(len(text) ** 2 for text in pieces) > MAX_MERGE_WORK:
        raise InvalidCheckpoint(
            f"`tokenizer.ggml.tokens`: expected pieces of ordinary length, found one of "
            f"{max(map(len, pieces)):,} characters"
        )
    ranked = [
        (-score, -cut, text[:cut], text[cut:])
        for text, score in pieces.items()
        for cut in range(1, len(text))
        if text[:cut] in pieces and text[cut:] in pieces
    ]
    ranked.sort(key=lambda entry: entry[:2])
    return [(left, right) for _, _, left, right in ranked]
