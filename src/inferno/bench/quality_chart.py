"""An evaluation as one picture: perplexity with its error, and what other weights cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from inferno.bench.chart import OURS, PEERS, check, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from inferno.evaluation import Evaluation

__all__ = ["check", "draw", "save"]


def draw(evaluation: Evaluation) -> Figure:
    """Draw a bar a model: perplexity, and, if others were compared, agreement and divergence."""
    from matplotlib.figure import Figure

    qualities = evaluation.qualities
    # matplotlib reads what is between dollar signs as mathematics.
    names = [f"{Path(q.name).name}\n{' + '.join(q.formats)}".replace("$", r"\$") for q in qualities]
    panels = [("perplexity", [q.perplexity for q in qualities], names)]
    others = [q for q in qualities if q.top1 is not None and q.kl is not None]
    if others:
        panels += [
            ("top-1 agreement", [q.top1 for q in others if q.top1], names[1:]),
            ("mean KL divergence", [q.kl for q in others if q.kl], names[1:]),
        ]
    height = 1.2 + 0.6 * len(qualities)
    figure = Figure(figsize=(4.2 * len(panels), height), layout="constrained")
    for number, (title, means, labels) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        colours = [OURS if label == names[0] else PEERS[0] for label in labels]
        values, errors = [m.value for m in means], [m.error for m in means]
        axes.barh(labels, values, xerr=errors, color=colours, ecolor=PEERS[-1], capsize=3)
        axes.invert_yaxis()
        if title == "top-1 agreement":
            axes.set_xlim(min(0.8, min(values) - 0.05), 1)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{evaluation.tokens:,} tokens", fontsize="medium")
    return figure
