"""All methods of one dataset and threat in one plot."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import MissingExtraError
from poisonproof.frontier.method import FAMILIES, Method
from poisonproof.frontier.published import PublishedPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curve", "frontier_svg"]

_COLORS = dict(
    zip(
        FAMILIES,
        ("#1f6f8b", "#4aa3b8", "#8a6d3b", "#7b5ea7", "#c8553d", "#a3b18a", "#2f7d4f", "#b5838d"),
        strict=True,
    )
)
_DASHES = ("-", (0, (6, 2)), (0, (3, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


def frontier_svg(
    methods: Sequence[Method], points: Sequence[PublishedPoint], title: str, unit: str
) -> bytes:
    """Draw certified accuracy against attack size; the same results give the same bytes.

    A colour for every kind of vote, a dash for every setting of it. Crosses are the paper's
    medians.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report") from error
    # A fixed salt and no date: nothing in the file changes from one run to the next.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "poisonproof", "svg.fonttype": "path"})
        figure = Figure(figsize=(8.6, 4.4), layout="constrained")
        ax = figure.subplots()
        visible = [_draw(ax, method, methods) for method in methods]
        for point in points:
            if point.median is not None:
                ax.plot(point.median, 50, "x", color="black", markersize=7, markeredgewidth=2)
        if any(point.median is not None for point in points):
            ax.plot([], [], "x", color="black", markeredgewidth=2, label="paper's medians")
        ax.set(xlabel=f"Attack size ({unit})", ylabel="Certified accuracy (%)")
        ax.set_xlim(0, 1.02 * max(visible))
        ax.set_ylim(0, 100)
        ax.grid(color="0.92")
        ax.set_title(title, loc="left")
        figure.legend(loc="outside right upper", fontsize=8, frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _draw(ax: Axes, method: Method, methods: Sequence[Method]) -> int:
    """Draw a curve; return the attack size at which less than one percent is left."""
    family = [other for other in methods if other.family == method.family]
    sizes, shares, style = curve(method)
    ax.plot(
        sizes,
        100 * shares,
        drawstyle=style,
        color=_COLORS[method.family],
        linestyle=_DASHES[family.index(method) % len(_DASHES)],
        linewidth=1.5,
        label=method.title,
    )
    return max(1, int((method.certified(np.arange(method.reach + 2)) >= 0.01).sum()))


def curve(
    method: Method, most: int = 200
) -> tuple[NDArray[np.int64], NDArray[np.float64], Literal["steps-post", "default"]]:
    """Return the points of a curve, and how to join them.

    Certified accuracy is a staircase: it keeps its value up to the size before the next corner.
    Of a fine one only some corners are kept, and joined by straight lines.
    """
    every = np.arange(method.reach + 2)
    shares = method.certified(every)
    corners = np.flatnonzero(np.diff(shares, prepend=2.0))
    corners = np.union1d(corners, every[-1:])
    if len(corners) <= most:
        return every[corners], shares[corners], "steps-post"
    kept = corners[np.unique(np.linspace(0, len(corners) - 1, most).astype(int))]
    return every[kept], shares[kept], "default"
