"""What a benchmark found, as data that can be saved, compared and drawn; and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from inferno.bench.contenders import Contender
from inferno.bench.limits import Limits
from inferno.bench.measure import Rates, Workload
from inferno.engine import Engine
from inferno.errors import InvalidOption

FILE_BYTES = 16 << 20  # a report is some kilobytes


def row(
    workload: Workload, contender: Contender, rates: Rates, ours: Rates, limit: str, share: float
) -> dict[str, Any]:
    """Return the figures of a contender; `share` is of the machine's `limit`."""
    return {
        "test": workload.name,
        "prompt": workload.prompt,
        "generate": workload.generate,
        "depth": workload.depth,
        "engine": contender.name,
        "tokens_per_second": round(rates.median, 2),
        "deviation": round(rates.deviation, 2),
        "least": round(rates.least, 2),
        "most": round(rates.most, 2),
        "runs": [round(rate, 2) for rate in rates.runs],
        "tokens": sorted(rates.tokens)[len(rates.tokens) // 2],  # as the engine counts them
        "limit": limit,
        "share": round(share, 3),
        "limit_tokens_per_second": round(rates.median / share, 2),
        "times": round(ours.over(rates), 3),  # how many times faster than this one inferno is
    }


def report(
    engine: Engine,
    contenders: Iterable[Contender],
    limits: Limits,
    rows: list[dict[str, Any]],
    provenance: dict[str, object],
) -> dict[str, Any]:
    """Return everything, with where it comes from."""
    return {
        **provenance,
        "model": engine.config.name,
        "formats": list(engine.weight_formats),
        "weight_bytes": engine.memory.weights,
        "kv_cache": engine.kv_cache,
        "threads": engine.threads,
        "isa": engine.isa,
        "engines": {c.name: {"version": c.version, "clock": c.clock} for c in contenders},
        "read_bytes_per_second": limits.read_bytes,
        "int8_macs_per_second": limits.int8_macs,
        "float_macs_per_second": limits.float_macs,
        "results": rows,
    }


def file_name(found: dict[str, Any]) -> str:
    """Return a name that tells a report from others: date, model, instruction set, threads."""
    words = (found["date"], found["model"], found["isa"], f"{found['threads']}t")
    return re.sub(r"[^\w.-]+", "-", "-".join(map(str, words))) + ".json"


def save(found: dict[str, Any], path: Path) -> Path:
    """Write a report to a file, or into a directory under a name of its own; return where."""
    path = path / file_name(found) if path.is_dir() else path
    try:
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise InvalidOption(f"`--save`: cannot write {path}: {error.strerror}") from error
    return path


def read(path: Path) -> dict[str, Any]:
    """Read a report that was saved, and check what a drawing needs of it.

    Raises:
        InvalidOption: it cannot be read, or is no report.
    """
    hint = "`inferno bench MODEL --json` prints one, `--save FILE` writes it"
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
        found = json.loads(data) if len(data) <= FILE_BYTES else None
    except OSError as error:
        raise InvalidOption(f"{path}: cannot be read: {error.strerror}", hint=hint) from error
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not _is_drawable(found):
        raise InvalidOption(f"{path}: expected results of `inferno bench`", hint=hint)
    return found


_WORDS = ("model", "cpu", "date")
_NUMBERS = (
    "prompt", "generate", "depth", "tokens_per_second", "share", "limit_tokens_per_second",
)  # fmt: skip


def _is_drawable(found: dict[str, Any]) -> bool:
    rows = found.get("results")
    return (
        all(isinstance(found.get(key), str) for key in _WORDS)
        and isinstance(found.get("threads"), int)
        and isinstance(rows, list)
        and bool(rows)
        and all(
            isinstance(row, dict)
            and isinstance(row.get("engine"), str)
            and all(_is_count(row.get(key)) for key in _NUMBERS)
            for row in rows
        )
    )


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < 1e12
