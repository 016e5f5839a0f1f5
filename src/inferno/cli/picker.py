"""Which model to chat with, asked once: on a terminal, when none was named and none is here.

Knows the catalogue and the machine's memory; fetches nothing itself.
"""

from __future__ import annotations

from inferno.catalogue import CATALOGUE, DEFAULT_MODEL, CatalogueEntry
from inferno.cli.style import format_bytes, printable

# What a short chat takes beside the weights: a cache of 2,048 tokens (at most 92 MB for the models
# of the catalogue), activations, and the interpreter.
_BESIDE_WEIGHTS = 250 << 20
_QUANTIZED_SHARE = {"q4_0": 4.5 / 16, "q8_0": 8.5 / 16}  # of 16-bit weights


def pick() -> str | None:
    """Ask until something that names a model was typed; None if the user leaves."""
    from inferno.machine import available_memory

    entries = list(CATALOGUE.values())
    memory = available_memory()
    free = "" if memory is None else f" {format_bytes(memory)} of memory are free."
    print(f"Which model? It is fetched once and kept.{free}\n")
    for number, entry in enumerate(entries, 1):
        print(f"  {number}  {_line(entry, memory)}")
    print()
    while True:
        try:
            answer = input(f"number or name [{DEFAULT_MODEL}]: ").strip()
        except EOFError:
            print()
            return None
        if not answer:
            return DEFAULT_MODEL
        if not answer.isdecimal():
            return answer
        if len(answer) <= 3 and 1 <= int(answer) <= len(entries):
            return entries[int(answer) - 1].name
        print(f"expected a number from 1 to {len(entries)}, found {printable(answer[:20])}")


def needed_memory(entry: CatalogueEntry) -> int:
    """Return about how many bytes a chat with the model takes."""
    share = _QUANTIZED_SHARE.get(entry.weights or "", 1.0)
    return int(entry.bytes * share) + _BESIDE_WEIGHTS


def _line(entry: CatalogueEntry, memory: int | None) -> str:
    needed = needed_memory(entry)
    fits = "" if memory is None else "fits" if needed <= memory else "too large"
    return (
        f"{entry.name:<27} {format_bytes(entry.bytes):>7}  needs {format_bytes(needed):>7}  "
        f"{entry.licence:<10}  {fits}"
    ).rstrip()
