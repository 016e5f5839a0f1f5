"""A report as one picture: prefill and decode, engine beside engine, under the machine's limit.

Drawn from a report's data alone, so that a saved one can be drawn again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferno.errors import InvalidOption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
GROUP_WIDTH = 0.8  # of the distance between two groups of bars
OURS = "#d9480f"  # embers
PEERS = ("#8a9bb0", "#5b6f88", "#b9c4d0", "#36475c")
LIMIT = "#212529"


def check(path: Path) -> None:
    """See that a chart could be written to `path`, before anything is measured for it.

    Raises:
        InvalidOption: the suffix is none that we draw, or matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidOption(
            f"`--plot`: expected a file that ends in {' or '.join(SUFFIXES)}, found {path.name!r}"
        )
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InvalidOption(
            "`--plot`: expected matplotlib, which draws the chart, found that it is not installed",
            hint="pip install 'inferno-engine[plot]'",
        ) from error


def draw(report: dict[str, Any]) -> Figure:
    """Draw the results of a report: an axes for prefill, one for decode, where there are rows."""
    from matplotlib.figure import Figure

    panels = [
        (
            "prefill",
            "tokens in the prompt",
            "prompt",
            [r for r in report["results"] if r["prompt"]],
        ),
        ("decode", "tokens before", "depth", [r for r in report["results"] if not r["prompt"]]),
    ]
    panels = [panel for panel in panels if panel[3]]
    figure = Figure(figsize=(4.8 * len(panels), 4.2), layout="constrained")
    for index, (title, x_label, key, rows) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        _draw_panel(axes, rows, key)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlabel(x_label)
        axes.set_ylabel("tokens a second")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    threads = f"{report['threads']} thread" + ("s" if report["threads"] != 1 else "")
    words = (report["model"], report["cpu"], threads, report["date"])
    # matplotlib reads what is between dollar signs as mathematics.
    figure.suptitle(" · ".join(words).replace("$", r"\$"), fontsize="medium")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the chart; the same report gives the same file."""
    import matplotlib

    # Text stays text in SVG: small, and it can be searched and read aloud.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "inferno"}
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
    with matplotlib.rc_context(style):
        try:
            figure.savefig(path, dpi=160, metadata=metadata)
        except OSError as error:
            raise InvalidOption(f"`--plot`: cannot write {path}: {error.strerror}") from error


def _draw_panel(axes: Axes, rows: list[dict[str, Any]], key: str) -> None:
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    groups = list(dict.fromkeys(row[key] for row in rows))
    width = GROUP_WIDTH / len(engines)
    for engine, place, colour in zip(
        engines, _places(len(engines), width), _colours(), strict=False
    ):
        mine = [row for row in rows if row["engine"] == engine]
        bars = axes.bar(
            [groups.index(row[key]) + place for row in mine],
            [row["tokens_per_second"] for row in mine],
            width * 0.94,
            label=engine.replace("$", r"\$"),
            color=colour,
        )
        # On white, for the line of the limit may pass behind.
        axes.bar_label(
            bars,
            [_figure(row["tokens_per_second"]) for row in mine],
            padding=3,
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            zorder=4,
        )
        if engine == engines[0]:
            for bar, row in zip(bars, mine, strict=True):
                axes.annotate(
                    f"{100 * row['share']:.0f} %",
                    (bar.get_x() + bar.get_width() / 2, bar.get_height()),
                    (0, -4),
                    textcoords="offset points",
                    horizontalalignment="center",
                    verticalalignment="top",
                    fontsize="small",
                    fontweight="bold",
                    color="white",
                )
    for index, group in enumerate(groups):
        row = next(row for row in rows if row[key] == group)
        axes.hlines(
            row["limit_tokens_per_second"],
            index - GROUP_WIDTH / 2 - 0.06,
            index + GROUP_WIDTH / 2 + 0.06,
            colors=LIMIT,
            linestyles="dashed",
            linewidth=1.2,
            label="limit of the machine (% reached)" if index == 0 else "",
        )
    axes.set_xticks(range(len(groups)), [str(group) for group in groups])
    top = max(max(row["tokens_per_second"], row["limit_tokens_per_second"]) for row in rows)
    axes.set_ylim(0, 1.16 * top or 1)  # room for the labels of the tallest bar
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)


def _places(count: int, width: float) -> list[float]:
    """Return where the bars of a group stand, beside its middle."""
    return [(index - (count - 1) / 2) * width for index in range(count)]


def _colours() -> Iterator[str]:
    """Yield a colour for each engine, ours first."""
    yield OURS
    while True:
        yield from PEERS


def _figure(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"
