"""What vocabularies agree on: how bytes and spaces are spelled, and the kinds of tokens."""

from __future__ import annotations

import re

SPACE = "\u2581"  # how SentencePiece vocabularies write a space
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")

# `tokenizer.ggml.token_type`, as llama.cpp numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def _byte_alphabet() -> dict[int, str]:
    """Return the printable character that stands for each byte in a byte-level vocabulary.

    Source: `bytes_to_unicode` of GPT-2's encoder: printable Latin-1 stands for itself, the rest
    is moved, in order, to U+0100 and up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + index) for index, byte in enumerate(moved)
    }


BYTE_TO_CHARACTER = _byte_alphabet()
CHARACTER_TO_BYTE = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}
