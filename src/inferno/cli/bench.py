"""`inferno bench MODEL`: tokens a second, beside what the machine could do and other engines do."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferno.cli.flags import Parser, add_engine_flags
from inferno.cli.loading import load, print_load_line
from inferno.cli.style import printable
from inferno.errors import InvalidOption

if TYPE_CHECKING:
    from inferno import Engine
    from inferno.bench.contenders import Contender
    from inferno.bench.limits import Limits
    from inferno.bench.measure import Workload

EXAMPLES = """\
examples:
  inferno bench smollm2-135m-instruct --prompt 512 --depth 0,1024
  inferno bench model.gguf --against llama.cpp --threads 2 --save results.json
  inferno bench results.json --plot chart.svg
"""

# What an engine that takes text may need beyond a workload's tokens: a nonce, and a token chosen.
TEXT_TOKENS = 24


def main(arguments: list[str]) -> int:
    """Measure, and print a row for each workload and engine; or draw what was measured before."""
    parser = Parser(
        "bench",
        usage="bench MODEL [OPTIONS]",
        examples=EXAMPLES,
        description="Prefill and decode in tokens a second: median and deviation of the runs,\n"
        "after one that warms up. Greedy ids, no sampling, no shared prefixes.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help=".gguf file, directory or name; saved results, with --plot"
    )
    parser.add_argument("--prompt", metavar="N,…", default="50,500,1500", help="prompt lengths")
    parser.add_argument("--generate", metavar="N", type=int, default=64, help="tokens decoded")
    parser.add_argument("--depth", metavar="N,…", default="0,500,1500", help="tokens before them")
    parser.add_argument("--runs", metavar="N", type=int, default=7, help="counted runs (7)")
    parser.add_argument(
        "--against", metavar="ENGINE", action="append", default=[],
        help="another engine: llama.cpp, ollama, or a server's URL; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--against-model", metavar="NAME", action="append", default=[],
        help="the model's name at the server; one for all, or one for each",
    )  # fmt: skip
    parser.add_argument(
        "--against-python", metavar="PATH", help="a Python with llama.cpp (one is made otherwise)"
    )
    parser.add_argument("--profile", action="store_true", help="where inferno's time goes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", metavar="PATH", help="write the JSON to a file or directory")
    parser.add_argument("--plot", metavar="FILE", help="draw a chart: .svg or .png")
    add_engine_flags(parser)
    options = parser.parse(arguments)
    _check_paths(options)
    if options.model.endswith(".json"):
        return _redraw(options)
    workloads = _workloads(options)
    if not hasattr(options, "context"):
        tokens = max(w.prompt or w.depth + w.generate + 1 for w in workloads)
        options.context = tokens + (TEXT_TOKENS if _servers(options) else 0)
    engine = load(options)
    print_load_line(engine)
    report = _measure(options, arguments, engine, workloads)
    if options.json:
        print(json.dumps(report, indent=1))
    if options.save:
        from inferno.bench.report import save

        save(report, Path(options.save))
    if options.plot:
        _plot(report, options.plot)
    return 0


def _check_paths(options: argparse.Namespace) -> None:
    """See that results can be written, before they are measured for minutes."""
    if options.plot:
        from inferno.bench import chart

        chart.check(Path(options.plot))
    for flag in ("save", "plot"):
        path = getattr(options, flag)
        if path and not Path(path).parent.is_dir():
            raise InvalidOption(f"`--{flag}`: expected a directory, found no {Path(path).parent}")


def _redraw(options: argparse.Namespace) -> int:
    from inferno.bench.report import read

    if not options.plot:
        raise InvalidOption(
            f"{options.model}: results were measured already",
            hint="`--plot chart.svg` draws them",
        )
    _plot(read(Path(options.model)), options.plot)
    return 0


def _plot(report: dict[str, Any], path: str) -> None:
    from inferno.bench import chart

    chart.save(chart.draw(report), Path(path))


def _workloads(options: argparse.Namespace) -> list[Workload]:
    from inferno.bench.measure import Workload

    prompts = _lengths("--prompt", options.prompt, least=1)
    depths = _lengths("--depth", options.depth, least=0)
    if options.generate < 1 or options.runs < 1:
        raise InvalidOption("`--generate`, `--runs`: expected at least 1")
    if not prompts and not depths:
        raise InvalidOption("`--prompt`, `--depth`: expected a length, found none")
    for engine in options.against:
        if engine not in ("llama.cpp", "ollama") and "://" not in engine:
            raise InvalidOption(
                f"`--against`: expected llama.cpp, ollama or a URL, found {engine!r}",
                hint="a URL is like http://127.0.0.1:8080",
            )
    servers = len(_servers(options))
    if len(options.against_model) not in (0, 1, servers):
        raise InvalidOption(
            f"`--against-model`: expected one name or {servers}, one for each server, "
            f"found {len(options.against_model)}"
        )
    return [
        *(Workload(prompt=n) for n in prompts),
        *(Workload(generate=options.generate, depth=n) for n in depths),
    ]


def _lengths(flag: str, text: str, *, least: int) -> list[int]:
    try:
        lengths = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        lengths = [-1]
    if any(length < least for length in lengths):
        raise InvalidOption(f"`{flag}`: expected lengths such as 50,500, found {text!r}")
    return lengths


def _servers(options: argparse.Namespace) -> list[str]:
    return [engine for engine in options.against if engine != "llama.cpp"]


def _contenders(options: argparse.Namespace, engine: Engine) -> Iterator[Contender]:
    from inferno import hub
    from inferno.bench import servers
    from inferno.bench.contenders import Inferno, LlamaCpp, llama_cpp_python

    yield Inferno(engine)
    names = options.against_model or [None]
    names = iter(names * len(options.against) if len(names) == 1 else names)
    size = {"threads": engine.threads, "context": engine.context}
    for flag in options.against:
        if flag == "llama.cpp":
            python = options.against_python
            python = Path(python) if python else llama_cpp_python()
            if not os.access(python, os.X_OK):
                raise InvalidOption(
                    f"`--against-python`: expected a Python that can be run, found {str(python)!r}",
                    hint="leave it out, and one with llama.cpp is made",
                )
            yield LlamaCpp(python, hub.resolve(options.model), **size)
        else:
            yield servers.contender(flag, next(names), **size)


def _measure(
    options: argparse.Namespace, arguments: list[str], engine: Engine, workloads: list[Workload]
) -> dict[str, Any]:
    """Run the workloads; print rows as they come, unless it is to be JSON; return the report."""
    from inferno.bench.limits import demand, measure_limits, share
    from inferno.bench.measure import run
    from inferno.bench.phases import profile
    from inferno.bench.provenance import provenance
    from inferno.bench.report import report, row
    from inferno.bench.texts import prompts_for

    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        contenders: list[Contender] = []
        for contender in _contenders(options, engine):
            if same := sum(contender.name == other.name for other in contenders):
                contender.name += f" ({same + 1})"  # results are told apart by it
            contenders.append(contender)
            stack.callback(contender.close)
        limits, takes = measure_limits(engine), demand(engine)
        prompts = prompts_for(contenders, engine)
        if not options.json:
            _print_head(limits, contenders)
        for workload in workloads:
            rates = run(contenders, workload, prompts, runs=options.runs)
            for contender, rate in zip(contenders, rates, strict=True):
                limit, part = share(workload, rate.median, takes, limits)
                rows.append(row(workload, contender, rate, rates[0], limit, part))
                if not options.json:
                    _print_row(rows[-1], workload.tokens)
            if options.profile or options.json or options.save:
                phases = profile(engine, workload)
                rows[-len(contenders)]["phases"] = phases
                if options.profile and not options.json:
                    _print_phases(phases)
        origin = provenance("inferno bench", arguments)
        return report(engine, contenders, limits, rows, origin)


def _print_head(limits: Limits, contenders: list[Contender]) -> None:
    print(
        f"machine: reads {limits.read_bytes / 1e9:.1f} GB/s, multiplies "
        f"{limits.int8_macs / 1e9:.0f} G int8 and {limits.float_macs / 1e9:.0f} G float pairs/s"
    )
    for contender in contenders:
        words = f"{contender.name}: {contender.version}, {contender.clock}"
        print(printable(words).replace("\n", " "))
    print(
        f"| {'test':<14} | {'engine':<22} | {'t/s':>18} | {'from … to':>18} | "
        f"{'of the limit':>16} | {'inferno':>7} |"
    )
    print(f"|{'-' * 16}|{'-' * 24}|{'-' * 19}:|{'-' * 19}:|{'-' * 17}:|{'-' * 8}:|")


def _print_row(row: dict[str, Any], tokens: int) -> None:
    engine = printable(row["engine"]).replace("\n", " ")
    rate = f"{row['tokens_per_second']:.2f} ± {row['deviation']:.2f}"
    span = f"{row['least']:.1f} … {row['most']:.1f}"
    part = f"{100 * row['share']:.0f} % {row['limit']}"
    times = f"{row['times']:.2f} x" if row["times"] != 1 else ""
    counted = "" if row["tokens"] == tokens else f" {row['tokens']} tokens by its own count"
    print(
        f"| {row['test']:<14} | {engine:<22} | {rate:>18} | {span:>18} | "
        f"{part:>16} | {times:>7} |{counted}",
        flush=True,
    )


def _print_phases(phases: dict[str, dict[str, float]]) -> None:
    for name, phase in phases.items():
        print(
            f"|   {name:<35} | {phase['milliseconds']:>9.3f} ms/token | {'':>18} | "
            f"{100 * phase['part']:>14.1f} % |         |"
            f" waiting {100 * phase['waiting']:.0f} %"
        )
