"""Geometry of the page's charts, in percent of the plot, so that they fit any screen.

Only numbers leave this module; the template draws them as plain SVG.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poisonproof.report.tally import Radii, Tally

__all__ = [
    "Bar",
    "Bars",
    "Tick",
    "count_ticks",
    "curve_path",
    "radius_bars",
    "round_step",
    "size_bars",
]

_MOST_BARS = 40
_HEIGHT = 1000


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, in percent, and what it says."""

    at: str
    text: str


@dataclass(frozen=True)
class Bar:
    """One bar, in percent of the plot.

    Attributes
    ----------
    x, width : str
        Horizontal extent.
    y, height : str
        All of the bar, from the top.
    part_y, part_height : str
        The lower part of it, for example the correct rows.
    """

    x: str
    width: str
    y: str
    height: str
    part_y: str
    part_height: str


@dataclass(frozen=True)
class Bars:
    """A histogram with its axes."""

    bars: tuple[Bar, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    bin_width: int


def curve_path(radii: Radii, domain: int) -> str:
    """Return the share of rows that withstand each size, as steps.

    The path lives in a box of `domain` by 1000 units; size s covers the stretch from s to s + 1.

    Examples
    --------
    >>> curve_path(Radii.of(np.array([0, 2])), domain=4)
    'M0 0H1V500H3V1000H4'
    """
    steps = [f"M0 {_height(radii.at(0), radii.n_rows)}"]
    for radius in np.unique(radii.values).tolist():
        if radius + 1 < domain:
            steps.append(f"H{radius + 1}V{_height(radii.at(radius + 1), radii.n_rows)}")
    return "".join([*steps, f"H{domain}"])


def radius_bars(tally: Tally, domain: int) -> Bars:
    """Return the histogram of radii: all predictions, and as a part of them the rows kept."""
    width = max(1, -(-domain // _MOST_BARS))
    edges = np.arange(0, domain + width, width)
    everything = np.histogram(tally.fixed.values, edges)[0]
    kept = np.histogram(tally.kept.values, edges)[0]
    return _bars(everything, kept, edges, 0, domain)


def size_bars(sizes: NDArray[np.integer]) -> Bars:
    """Return the histogram of rows per partition."""
    low, high = int(sizes.min()), int(sizes.max()) + 1
    width = max(1, -(-(high - low) // _MOST_BARS))
    edges = np.arange(low, high + width, width)
    counts = np.histogram(sizes, edges)[0]
    return _bars(counts, counts, edges, low, int(edges[-1]))


def count_ticks(low: int, high: int, most: int = 6) -> tuple[Tick, ...]:
    """Return ticks at round whole numbers from `low` to `high`.

    Examples
    --------
    >>> [tick.text for tick in count_ticks(0, 22)]
    ['0', '5', '10', '15', '20']
    """
    step = round_step((high - low) / most)
    first = -(-low // step) * step
    return tuple(
        Tick(_percent((value - low) / (high - low)), f"{value:,}")
        for value in range(first, high + 1, step)
    )


def _bars(
    counts: NDArray[np.integer],
    parts: NDArray[np.integer],
    edges: NDArray[np.integer],
    low: int,
    high: int,
) -> Bars:
    step = round_step(int(counts.max(initial=1)) / 4)
    top = max(step, -(-int(counts.max(initial=1)) // step) * step)
    bars = tuple(
        Bar(
            x=_percent((int(left) - low) / (high - low)),
            width=_percent((min(int(right), high) - int(left)) / (high - low)),
            y=_percent(1 - count / top),
            height=_percent(count / top),
            part_y=_percent(1 - part / top),
            part_height=_percent(part / top),
        )
        for left, right, count, part in zip(edges, edges[1:], counts, parts, strict=False)
        if count
    )
    y_ticks = tuple(
        Tick(_percent(1 - value / top), f"{value:,}") for value in range(0, top + 1, step)
    )
    return Bars(bars, count_ticks(low, high), y_ticks, int(edges[1] - edges[0]))


def round_step(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is not below `least`.

    Examples
    --------
    >>> [round_step(x) for x in (0.3, 3, 60, 700)]
    [1, 5, 100, 1000]
    """
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _height(part: int, whole: int) -> str:
    return f"{_HEIGHT * (1 - part / whole):.5g}"


def _percent(share: float) -> str:
    return f"{100 * share:.6g}%"
