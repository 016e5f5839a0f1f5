"""`inferno bench MODEL`: tokens a second, beside what the machine could do and other engines do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferno.cli.flags import Parser, add_engine_flags
from inferno.cli.loading import load, print_load_line
from inferno.cli.style import format_bytes
from inferno.errors import InvalidOption

if TYPE_CHECKING:
    from inferno import Engine
    from inferno.bench.contenders import Contender
    from inferno.bench.limits import Limits
    from inferno.bench.measure import Rates, Workload

EXAMPLES = """\
examples:
  inferno bench smollm2-135m-instruct --prompt 512 --depth 0,1024
  inferno bench model.gguf --against llama.cpp --threads 2 --json
"""

ENGINES = ("llama.cpp",)


def main(arguments: list[str]) -> int:
    """Measure, and print a row for each workload and engine."""
    parser = Parser(
        "bench",
        usage="bench MODEL [OPTIONS]",
        examples=EXAMPLES,
        description="Prefill and decode in tokens a second: median (least to most) of the runs,\n"
        "after one that warms up. Greedy ids, no sampling, no shared prefixes.",
    )
    parser.add_argument("model", metavar="MODEL", help=".gguf file, directory or name")
    parser.add_argument("--prompt", metavar="N,…", default="50,500,1500", help="prompt lengths")
    parser.add_argument("--generate", metavar="N", type=int, default=64, help="tokens decoded")
    parser.add_argument("--depth", metavar="N,…", default="0,500,1500", help="tokens before them")
    parser.add_argument("--runs", metavar="N", type=int, default=7, help="counted runs (7)")
    parser.add_argument("--against", metavar="ENGINE", help="another engine: llama.cpp")
    parser.add_argument(
        "--against-python", metavar="PATH", help="a Python that has it (one is made otherwise)"
    )
    parser.add_argument("--profile", action="store_true", help="where inferno's time goes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_engine_flags(parser)
    options = parser.parse(arguments)
    prompts = _lengths("--prompt", options.prompt, least=1)
    depths = _lengths("--depth", options.depth, least=0)
    if options.generate < 1 or options.runs < 1:
        raise InvalidOption("`--generate`, `--runs`: expected at least 1")
    if options.against is not None and options.against not in ENGINES:
        raise InvalidOption(
            f"`--against`: expected {' or '.join(ENGINES)}, found {options.against!r}"
        )
    needed = max([*prompts, *(depth + options.generate + 1 for depth in depths)])
    if not hasattr(options, "context"):
        options.context = needed

    from inferno.bench.limits import demand, measure_limits, share
    from inferno.bench.measure import Workload, run
    from inferno.bench.phases import profile

    engine = load(options)
    print_load_line(engine)
    contenders = _contenders(options, engine)
    limits, takes = measure_limits(engine), demand(engine)
    rows: list[dict[str, Any]] = []
    workloads = [Workload(prompt=n) for n in prompts]
    workloads += [Workload(generate=options.generate, depth=n) for n in depths]
    if not options.json:
        _print_limits(limits)
        _print_heading()
    for workload in workloads:
        rates = run(contenders, workload, runs=options.runs)
        for contender, rate in zip(contenders, rates, strict=True):
            limit, part = share(workload, rate.median, takes, limits)
            row = _row(workload, contender, rate, rates[0], limit, part)
            rows.append(row)
            if not options.json:
                _print_row(row)
        if options.profile:
            phases = profile(engine, workload)
            if options.json:
                rows[-len(contenders)]["phases"] = phases
            else:
                _print_phases(phases)
    if options.json:
        print(json.dumps(_report(engine, limits, rows), indent=1))
    return 0


def _lengths(flag: str, text: str, *, least: int) -> list[int]:
    try:
        lengths = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        lengths = [-1]
    if any(length < least for length in lengths):
        raise InvalidOption(f"`{flag}`: expected lengths such as 50,500, found {text!r}")
    return lengths


def _contenders(options: Any, engine: Engine) -> Sequence[Contender]:
    from inferno import hub
    from inferno.bench.contenders import Inferno, LlamaCpp, llama_cpp_python

    if options.against is None:
        return [Inferno(engine)]
    python = Path(options.against_python) if options.against_python else llama_cpp_python()
    model = hub.resolve(options.model)
    other = LlamaCpp(python, model, threads=engine.threads, context=engine.context)
    return [Inferno(engine), other]


def _row(
    workload: Workload, contender: Contender, rate: Rates, ours: Rates, limit: str, part: float
) -> dict[str, Any]:
    return {
        "test": workload.name,
        "engine": contender.name,
        "tokens_per_second": round(rate.median, 2),
        "least": round(rate.least, 2),
        "most": round(rate.most, 2),
        "limit": limit,
        "share": round(part, 3),
        "times": round(ours.over(rate), 3),  # how many times faster than this one inferno is
    }


def _print_limits(limits: Limits) -> None:
    print(
        f"machine: reads {limits.read_bytes / 1e9:.1f} GB/s, multiplies "
        f"{limits.int8_macs / 1e9:.0f} G int8 and {limits.float_macs / 1e9:.0f} G float pairs/s"
    )


def _print_heading() -> None:
    print(
        f"| {'test':<14} | {'engine':<22} | {'t/s':>26} | {'of the limit':>16} | {'inferno':>7} |"
    )
    print(f"|{'-' * 16}|{'-' * 24}|{'-' * 27}:|{'-' * 17}:|{'-' * 8}:|")


def _print_row(row: dict[str, Any]) -> None:
    rates = f"{row['tokens_per_second']:.1f} ({row['least']:.1f} to {row['most']:.1f})"
    part = f"{100 * row['share']:.0f} % {row['limit']}"
    times = f"{row['times']:.2f} x" if row["times"] != 1 else ""
    print(
        f"| {row['test']:<14} | {row['engine']:<22} | {rates:>26} | {part:>16} | {times:>7} |",
        flush=True,
    )


def _print_phases(phases: dict[str, dict[str, float]]) -> None:
    for name, phase in phases.items():
        print(
            f"|   {name:<38} | {phase['milliseconds']:>16.3f} ms/token | "
            f"{100 * phase['part']:>10.1f} % |         |"
            f" waiting {100 * phase['waiting']:.0f} %"
        )


def _report(engine: Engine, limits: Limits, rows: list[dict[str, Any]]) -> dict[str, Any]:
    import inferno
    from inferno import machine

    return {
        "model": engine.config.name,
        "formats": list(engine.weight_formats),
        "weights": format_bytes(engine.memory.weights),
        "threads": engine.threads,
        "isa": engine.isa,
        "cpu": machine.cpu_name(),
        "python": sys.version.split()[0],
        "version": inferno.__version__,
        "date": date.today().isoformat(),
        "read_bytes_per_second": limits.read_bytes,
        "int8_macs_per_second": limits.int8_macs,
        "float_macs_per_second": limits.float_macs,
        "results": rows,
    }
