"""Print what speculation brings: tokens a second and acceptance, with and without, by kind of text.

Three kinds: a rewrite of a function with one name changed, text that repeats itself, and prose. A
model with random weights says nothing of these; with `--forced` a given text takes the place of
what is sampled, which leaves all the work but the sampler's as it is.
`--sweep` runs fixed numbers of guesses against the shortest run of ids that is looked for.

    python benchmarks/speculation.py smollm2-135m-instruct
    python benchmarks/speculation.py random-tinyllama.gguf --forced
    python benchmarks/speculation.py smollm2-135m-instruct --sweep
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import inferno
from inferno import speculation

COUNT_WORDS = """def summarize(path, limit=10):
    counts = {}
    with open(path) as file:
        for line in file:
            for word in line.lower().split():
                word = word.strip(".,;:!?")
                if not word:
                    continue
                counts[word] = counts.get(word, 0) + 1
    pairs = sorted(counts.items(), key=lambda pair: pair[1], reverse=True)
    for word, count in pairs[:limit]:
        print(f"{word}: {count}")
    return counts
"""
READ_SETTINGS = """def read_settings(path):
    settings = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if "=" not in line:
                raise ValueError(f"line {number}: expected name = value")
            name, value = line.split("=", 1)
            name = name.strip().lower()
            value = value.strip()
            if name in settings:
                raise ValueError(f"line {number}: {name} stands twice")
            settings[name] = value
    return settings
"""


def rewrite(code: str, old: str, new: str) -> str:
    """Return the request to rename one thing in a function."""
    return f"Rewrite this function with `{old}` renamed to `{new}`:\n\n```python\n{code}```"


# (kind, prompt, goes through the chat template)
WORKLOADS = [
    ("code edit", rewrite(COUNT_WORDS, "counts", "totals"), True),
    ("code edit", rewrite(READ_SETTINGS, "settings", "options"), True),
    ("repetition", "Repeat after me.\n" + "The cat sat on the mat.\n" * 3, False),
    ("repetition", "Row, row, row your boat,\nGently down the stream.\n" * 3, False),
    ("prose", "Explain how rain forms, in plain words.", True),
    ("prose", "What should I see in Paris in two days?", True),
    ("prose", "Write a letter to a friend about moving to a new city.", True),
]

# What a model that knows the task would answer, for those that know nothing.
ANSWERS = {
    "code edit": [
        f"```python\n{COUNT_WORDS.replace('counts', 'totals')}```\n",
        f"```python\n{READ_SETTINGS.replace('settings', 'options')}```\n",
    ],
    "repetition": ["The cat sat on the mat.\n" * 24],
    "prose": [
        "Water leaves seas, lakes and wet ground as vapour that nobody sees. Warm air carries it "
        "up, and the higher it gets the colder it becomes, until it can no longer hold what it "
        "took along. Tiny drops gather around specks of dust and drift as a cloud. Where they "
        "meet they merge; once they weigh too much for the wind below to keep them aloft, down "
        "they come. Mountains help, since they push a breeze upward, and so does a cold front, "
        "which slides beneath mild air like a wedge. In winter the same story ends in snow."
    ],
}


class Teller:
    """Stands for a sampler and says given ids, whatever the logits."""

    def __init__(self, ids: Sequence[int], start: int) -> None:
        self._ids, self._start = ids, start

    def sample(self, logits: Any, position: int, allowed: Any = None) -> int:
        return self._ids[position - self._start]

    def accept(self, tokens: Any, generated: bool) -> None:
        pass


def told(
    engine: inferno.Engine, prompt: Sequence[int], text: str, mode: str | int
) -> inferno.Generation:
    """Return a generation that says `text` after `prompt`."""
    ids = engine.tokenizer.encode(text, previous=prompt[-1])
    params = inferno.SamplingParams(max_tokens=len(ids), ignore_eos=True, speculation=mode)
    generation = inferno.Generation(engine.new_session(), params, prompt)
    generation._sampler = lambda: Teller(ids, len(prompt))  # type: ignore[assignment]
    return generation


def generations(
    engine: inferno.Engine, kind: str, mode: str | int, options: argparse.Namespace
) -> list[inferno.Generation]:
    """Run the workloads of a kind once."""
    made = []
    for number, (_, prompt, is_chat) in enumerate(w for w in WORKLOADS if w[0] == kind):
        if options.forced:
            if number < len(ANSWERS[kind]):
                made.append(told(engine, engine._prompt_ids(prompt), ANSWERS[kind][number], mode))
            continue
        params = {
            "temperature": options.temperature,
            "seed": 1,
            "max_tokens": options.tokens,
            "speculation": mode,
        }
        if is_chat:
            system = {"role": "system", "content": "You are a careful programmer."}
            messages = [system] * (kind == "code edit") + [{"role": "user", "content": prompt}]
            made.append(engine.chat(messages, **params))
        else:
            made.append(engine.generate(prompt, **params))
    for generation in made:
        _ = generation.text
    return made


def measured(
    engine: inferno.Engine, kind: str, modes: Sequence[str | int], options: argparse.Namespace
) -> None:
    """Print a row a mode: tokens a second, and how much faster than the first mode in its turn."""
    rates: dict[str | int, list[float]] = {mode: [] for mode in modes}
    last: dict[str | int, list[inferno.Generation]] = {}
    for _ in range(options.runs):
        for mode in modes:  # in turns, so that what the machine does hits all alike
            last[mode] = generations(engine, kind, mode, options)
            tokens = sum(g.stats.generated_tokens for g in last[mode])
            rates[mode].append(tokens / sum(g.stats.decode_seconds for g in last[mode]))
    for mode in modes:
        if [g.tokens for g in last[mode]] != [g.tokens for g in last[modes[0]]]:
            raise SystemExit(f"speculation={mode} changed the text of {kind}")
        stats = [g.stats for g in last[mode]]
        drafted, accepted = sum(s.drafted for s in stats), sum(s.accepted for s in stats)
        tokens = sum(s.generated_tokens for s in stats)
        ratio = statistics.median(a / b for a, b in zip(rates[mode], rates[modes[0]], strict=True))
        share = f"{accepted} of {drafted} ({accepted / drafted:.0%})" if drafted else "-"
        rate = statistics.median(rates[mode])
        passes = tokens / (tokens - accepted)
        print(
            f"| {kind} | {mode} | {rate:.1f} | {ratio:.2f} | {share} | {passes:.2f} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--forced", action="store_true", help="say given texts, for random weights")
    parser.add_argument("--sweep", action="store_true", help="guesses x shortest runs")
    parser.add_argument("--kinds", default="code edit,repetition,prose")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--isa")
    options = parser.parse_args()
    engine = inferno.Engine.load(options.model, threads=options.threads, isa=options.isa)
    kinds = options.kinds.split(",")
    for kind in kinds:  # warm up, and let the costs be measured
        generations(engine, kind, "auto", options)
    table = engine._pass_costs.table()
    print(f"{engine.isa}, {engine.threads} threads; cost of a pass by rows:", end=" ")
    print(", ".join(f"{rows}: {table[rows]:.2f}" for rows in (2, 3, 5, 9, 17)))
    print("| text | speculation | tok/s | times | accepted | tokens a pass |")
    print("|---|---|---|---|---|---|")
    if not options.sweep:
        for kind in kinds:
            measured(engine, kind, ("off", "auto"), options)
        return
    for shortest in (1, 2, 3, 4):
        speculation.SHORTEST_NGRAM = shortest
        print(f"| runs of {shortest} to {speculation.LONGEST_NGRAM} | | | | | |")
        for kind in kinds:
            measured(engine, kind, ("off", "auto", 1, 2, 4, 8, 16), options)


if __name__ == "__main__":
    main()
