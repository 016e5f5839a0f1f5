"""Print what sampling one token takes, by the size of the vocabulary and the options.

The logits are normal with a standard deviation of 3, about as peaked as those of a small model in
prose; the time is the median of many calls with other logits each.

    python benchmarks/sampling.py smollm2-135m-instruct
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np

import inferno
from inferno import _native

VOCABULARIES = (32_000, 49_152, 152_064)
DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": DEFAULTS,
    "greedy": {"temperature": 0.0},
    "top_k=0": {**DEFAULTS, "top_k": 0},
    "top_p=0.95 alone": {"temperature": 1.0, "top_p": 0.95},
    "temperature=1 alone": {"temperature": 1.0},
    "typical_p=0.9 alone": {"temperature": 1.0, "typical_p": 0.9},
    "penalties": {**DEFAULTS, "repetition_penalty": 1.1, "frequency_penalty": 0.1},
    "dry": {**DEFAULTS, "dry_multiplier": 0.8},
    "xtc": {**DEFAULTS, "xtc_probability": 0.5},
    "100 biases": {**DEFAULTS, "logit_bias": dict.fromkeys(range(100), 1.0)},
}
HISTORY = 2000  # tokens that penalties and DRY look back at


def milliseconds(engine: inferno.Engine, size: int, options: dict[str, Any], calls: int) -> float:
    """Return the median time of a call."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((8, size)) * 3).astype(np.float32)
    sampler = _native.Sampler(engine._executor, num_tokens=size, seed=1, **options)
    sampler.accept(rng.integers(0, size, HISTORY).astype(np.int32), True)
    taken = []
    for position, row in zip(range(calls), itertools.cycle(rows), strict=False):
        began = time.perf_counter()
        sampler.sample(row, position)
        taken.append(time.perf_counter() - began)
    return 1e3 * float(np.median(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="whose instruction set is used: its own logits are not")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--isa")
    arguments = parser.parse_args()
    engine = inferno.Engine.load(arguments.model, isa=arguments.isa)
    print(f"milliseconds a token, {engine.isa}")
    print("| | " + " | ".join(f"{size:,}" for size in VOCABULARIES) + " |")
    print("|---|" + "---|" * len(VOCABULARIES))
    for name, options in OPTIONS.items():
        times = [milliseconds(engine, size, options, arguments.calls) for size in VOCABULARIES]
        print(f"| {name} | " + " | ".join(f"{t:.3f}" for t in times) + " |", flush=True)


if __name__ == "__main__":
    main()
