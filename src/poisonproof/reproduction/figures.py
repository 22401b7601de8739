"""The paper's figures: certified accuracy against attack size, all k of a dataset in one plot."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from poisonproof.evaluation import CertifiedAccuracyDisplay
from poisonproof.extras import needing
from poisonproof.reproduction.outcome import certify_result
from poisonproof.reproduction.rows import ReportRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["figure_svg"]

_COLORS = ("#1f6f8b", "#c8553d", "#6a994e", "#7b5ea7")


def figure_svg(rows: Sequence[ReportRow], title: str) -> bytes:
    """Draw finished rows of one dataset; the same rows give the same bytes.

    Solid: our certified accuracy. Dashed: our accuracy without an attack. Dot: our median; cross:
    the paper's, as the attack size it stands for.
    """
    with needing("matplotlib", "report"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    # A fixed salt and no date: nothing in the file changes from one run to the next.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "poisonproof", "svg.fonttype": "path"})
        figure = Figure(figsize=(6.4, 5.0), layout="constrained")
        ax = figure.subplots()
        curves = [_draw(row, ax, color) for row, color in zip(rows, _COLORS, strict=False)]
        ax.plot([], [], "x", color="0.45", markeredgewidth=2, label="paper's median")
        ax.set_title(title, loc="left")
        # Below the plot: inside it would cover a curve.
        ax.legend().remove()
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        # The last images withstand attacks far beyond the others; the plot ends before them.
        ax.set_xlim(0, 1.05 * max(_visible(curve) for curve in curves))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _draw(row: ReportRow, ax: Axes, color: str) -> CertifiedAccuracyDisplay:
    assert row.result is not None
    curve = CertifiedAccuracyDisplay.from_certificates(
        certify_result(row.result),
        row.result.labels,
        name=f"k = {row.recipe.n_partitions:,}",
        ax=ax,
        color=color,
    )
    if row.recipe.paper.median is not None:
        median = row.recipe.paper.median - 1
        ax.plot(median, 50, "x", color=color, markersize=8, markeredgewidth=2, zorder=4)
    return curve


def _visible(curve: CertifiedAccuracyDisplay) -> int:
    """Return the attack size at which less than one percent is left."""
    return max(1, int((curve.certified_accuracy >= 0.01).sum()))
