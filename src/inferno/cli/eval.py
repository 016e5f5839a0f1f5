"""`inferno eval MODEL`: how good a model is at a text, and how far other weights are from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferno.cli.flags import Parser, add_engine_flags, engine_options
from inferno.cli.loading import LoadProgress
from inferno.cli.style import printable
from inferno.cli.text_file import read_text

if TYPE_CHECKING:
    from inferno import Engine
    from inferno.evaluation import Evaluation, Mean

CACHE_PREFIX = "kv-cache="


def main(arguments: list[str]) -> int:
    """Measure, then print a table."""
    parser = Parser(
        "eval",
        usage="eval MODEL --text FILE [OPTIONS]",
        description="Measure how well a model predicts a text, and how far others are from it.\n"
        "Figures have their standard error. A long text is gone through in windows.",
        examples="examples:\n"
        "  inferno eval model.gguf --text prose.txt\n"
        "  inferno eval bf16.gguf --text prose.txt --against q4_0 --against other.gguf",
    )
    parser.add_argument("model", metavar="MODEL", help=".gguf file, directory or name")
    parser.add_argument("--text", metavar="FILE", required=True, help="UTF-8; - is standard input")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="OTHER",
        help="another model; or MODEL in other weights, e.g. q4_0, or with another cache, "
        "kv-cache=q8_0; can be repeated",
    )
    parser.add_argument(
        "--window", type=int, metavar="N", help="tokens a pass sees (2048, or the context)"
    )
    parser.add_argument(
        "--stride", type=int, metavar="N", help="tokens windows advance by (half of one)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", metavar="FILE", help="draw a chart, .png or .svg")
    add_engine_flags(parser)
    options = parser.parse(arguments)

    from inferno.bench import quality_chart
    from inferno.evaluation import evaluate

    if options.plot is not None:
        quality_chart.check(Path(options.plot))
    text = read_text("--text", options.text)
    given = engine_options(options)
    with LoadProgress() as progress:
        engine = _load(options.model, given, progress)
        others = [
            (name, _load_other(options.model, name, given, progress)) for name in options.against
        ]
    with LoadProgress() as progress:
        evaluation = evaluate(
            engine,
            text,
            against=others,
            window=options.window,
            stride=options.stride,
            progress=progress,
        )
    if options.plot is not None:
        quality_chart.save(quality_chart.draw(evaluation), Path(options.plot))
        print(f"wrote {options.plot}", file=sys.stderr)
    if options.json:
        print(json.dumps(as_data(evaluation), indent=1))
    else:
        print(table(evaluation))
    return 0


def _load(model: str, given: dict[str, Any], progress: LoadProgress) -> Engine:
    import inferno

    return inferno.Engine.load(model, progress=progress, **given)


def _load_other(model: str, name: str, given: dict[str, Any], progress: LoadProgress) -> Engine:
    """Load what `--against` names: the same model in other weights or with another cache, or
    another model."""
    from inferno.evaluation import names_weights

    if names_weights(name):
        return _load(model, {**given, "weights": name}, progress)
    if name.startswith(CACHE_PREFIX):
        return _load(model, {**given, "kv_cache": name.removeprefix(CACHE_PREFIX)}, progress)
    return _load(name, {key: value for key, value in given.items() if key != "weights"}, progress)


def table(evaluation: Evaluation) -> str:
    """Return the figures as a table, and the method in a line below."""
    reference, *others = evaluation.qualities
    header = ["model", "weights", "perplexity"]
    if others:
        header += ["change", "top-1 agreement", "mean KL"]
    rows = [header]
    for quality in evaluation.qualities:
        name = printable(quality.name).replace("\n", " ")
        name = name if len(name) <= 32 else f"…{name[-31:]}"
        row = [name, " + ".join(quality.formats), _figure(quality.perplexity)]
        if quality.excess_loss and quality.top1 and quality.kl:
            ratio = quality.excess_loss.exp()
            row.append(f"{100 * (ratio.value - 1):+.2f} % ± {100 * ratio.error:.2f}")
            row.append(f"{100 * quality.top1.value:.1f} % ± {100 * quality.top1.error:.1f}")
            row.append(f"{quality.kl.value:.4f} ± {quality.kl.error:.4f}")
        rows.append([*row, *[""] * (len(header) - len(row))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    method = f"{evaluation.tokens:,} tokens"
    if evaluation.tokens >= evaluation.window:
        method += f", windows of {evaluation.window:,} advancing by {evaluation.stride:,}"
    if others:
        method += f"; the others against {printable(reference.name)}"
    return "\n".join([*lines, method])


def _figure(mean: Mean) -> str:
    return f"{mean.value:.3f} ± {mean.error:.3f}"


def as_data(evaluation: Evaluation) -> dict[str, Any]:
    """Return what `--json` prints: figures and, after `_error`, their standard errors."""
    models = []
    for quality in evaluation.qualities:
        data: dict[str, Any] = {
            "model": quality.name,
            "weights": list(quality.formats),
            "kv_cache": quality.kv_cache,
        }
        figures = {
            "perplexity": quality.perplexity,
            "loss": quality.loss,
            "excess_loss": quality.excess_loss,
            "top1_agreement": quality.top1,
            "mean_kl": quality.kl,
        }
        for name, mean in figures.items():
            if mean is not None:
                data |= {name: mean.value, f"{name}_error": mean.error}
        models.append(data)
    return {
        "tokens": evaluation.tokens,
        "window": evaluation.window,
        "stride": evaluation.stride,
        "models": models,
    }
