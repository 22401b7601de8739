"""Where on its curve a number is written, so that nobody takes it for another curve's."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.evaluation.comparison import FAMILIES
from poisonproof.exceptions import needing
from poisonproof_research.frontier.curves import Curve
from poisonproof_research.frontier.published import PublishedPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = NDArray[np.float64]

_APART = 0.055
"""Wanted distance of a number from other numbers, in widths of the plot."""


def mark_places(
    curves: Sequence[Points], taken: Sequence[Points] = (), *, ratio: float = 0.6
) -> list[tuple[float, float]]:
    """Return a place on every curve that is far from the other curves and places.

    Parameters
    ----------
    curves : sequence of ndarray of shape (m, 2)
        Corners of each curve, both coordinates from 0 to 1.
    taken : sequence of ndarray of shape (2,)
        Places that are taken already.
    ratio : float
        Height of the plot over its width.

    Returns
    -------
    list of (float, float)
        One point per curve. Curves with the least room choose first.

    Examples
    --------
    >>> flat = np.array([[0.0, 0.2], [1.0, 0.2]])
    >>> steep = np.array([[0.0, 0.9], [0.5, 0.0]])
    >>> (x, y), _ = mark_places([flat, steep])
    >>> abs(x - 0.39) > 0.05, round(y, 6)  # they cross at 0.39
    (True, 0.2)
    """
    paths = [_walk(curve * [1.0, ratio]) for curve in curves]
    room = [
        _distance(path, [other for other in paths if other is not path]) - _outside(path, ratio)
        for path in paths
    ]
    order = sorted(range(len(paths)), key=lambda index: float(room[index].max()))
    occupied = [place[None] * [1.0, ratio] for place in taken]
    places: dict[int, Points] = {}
    for index in order:
        apart = _distance(paths[index], occupied)
        crowded = np.maximum(_APART - apart, 0.0) * 20
        places[index] = paths[index][int(np.argmax((room[index] - crowded).round(6)))]
        occupied.append(places[index][None])
    return [(float(x), float(y / ratio)) for x, y in (places[i] for i in range(len(paths)))]


def _walk(corners: Points, steps: int = 200) -> Points:
    """Return points at equal distances along the curve."""
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    at = np.linspace(0.0, length[-1], steps)
    return np.column_stack([np.interp(at, length, corners[:, axis]) for axis in (0, 1)])


def _distance(path: Points, others: Sequence[Points], far: float = 0.08) -> NDArray[np.float64]:
    """Return how far each point of a path is from the nearest of the others, at most `far`."""
    nearest = np.full(len(path), far)
    for other in others:
        gaps = np.hypot(*(path[:, None] - other[None]).transpose(2, 0, 1))
        nearest = np.minimum(nearest, gaps.min(axis=1))
    return nearest


def _outside(path: Points, ratio: float, margin: float = 0.03) -> NDArray[np.float64]:
    """Return how much a number at each point would lie on the frame."""
    inner = np.minimum(
        np.minimum(path[:, 0], 1.0 - path[:, 0]), np.minimum(path[:, 1], ratio - path[:, 1])
    )
    over: NDArray[np.float64] = np.maximum(margin - inner, 0.0) * 5
    return over


# All methods of one dataset and threat in one plot, every curve with its number.

_COLORS = dict(
    zip(
        FAMILIES,
        ("#1b6ca8", "#1f9aa5", "#b07d10", "#7b4fa3", "#cc4b24", "#6a8f2f", "#17603a", "#b0427e"),
        strict=True,
    )
)
"""One colour per kind of vote, told apart by people who see fewer of them, too."""

_DASHES: tuple[Any, ...] = ("-", (0, (7, 2)), (0, (3, 1.6)), (0, (1.2, 1.2)), (0, (7, 2, 1.5, 2)))
_WIDTH, _PLOT_HEIGHT, _LINE_HEIGHT = 7.0, 4.3, 0.19  # inches
_COLUMN_WIDTH = 42  # characters
_CROWDED = 12
"""With more curves than this, those that another one beats everywhere step back."""


def frontier_svg(
    methods: Sequence[Curve], points: Sequence[PublishedPoint], title: str, unit: str
) -> bytes:
    """Draw certified accuracy against attack size; the same results give the same bytes.

    A colour for every kind of vote, a shade and a dash for every setting of it, and on every curve
    the number that it has in the legend and in the table. Crosses are the paper's medians. Where
    there are many, methods that another one beats at every size are thin and grey, and only the
    table names them.
    """
    with needing("matplotlib", "report"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    crosses = [point for point in points if point.median is not None]
    grey = steps_back(methods)
    numbered = {
        number: method for number, method in enumerate(methods, start=1) if number - 1 not in grey
    }
    names = {number: _wrapped(f"{number}  {method.title}") for number, method in numbered.items()}
    lines = _legend_lines([*names.values(), *["one"] * (bool(grey) + len(crosses))])
    # A fixed salt and no date: nothing in the file changes from one run to the next.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "poisonproof", "svg.fonttype": "path"})
        height = _PLOT_HEIGHT + _LINE_HEIGHT * lines
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        ax = figure.subplots()
        last = _last_size(methods, crosses)
        ax.set(xlabel=f"Attack size ({unit})", ylabel="Certified accuracy (%)")
        ax.set_xlim(0, last)
        ax.set_ylim(0, 100)
        ax.grid(color="0.92")
        ax.set_title(title, loc="left")
        for number, method in numbered.items():
            style = curve_style(method, list(numbered.values()))
            _draw(ax, method, style, names[number])
        label = "surpassed by others"
        for place in grey:
            _draw(ax, methods[place], ("0.8", "-"), label, linewidth=0.8, zorder=1)
            label = "_"  # one line of the legend for all of them
        _number(ax, numbered, crosses, last)
        for letter, point in zip("abcdefghij", crosses, strict=False):
            _cross(ax, letter, point)
        figure.legend(
            loc="outside lower left", fontsize=8.5, frameon=False, ncols=2, handlelength=3.0
        )
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _wrapped(name: str) -> str:
    """Break a long name, so that it stays in its column of the legend."""
    return textwrap.fill(name, _COLUMN_WIDTH, subsequent_indent="      ")


def _legend_lines(names: Sequence[str]) -> int:
    """Return how many lines the longer of two columns of the legend has."""
    half = -(-len(names) // 2)
    return max(sum(name.count("\n") + 1 for name in part) for part in (names[:half], names[half:]))


def _last_size(methods: Sequence[Curve], crosses: Sequence[PublishedPoint]) -> float:
    """Return where the axis ends: less than one percent is left of every method."""
    visible = [
        int((method.certified(np.arange(method.reach + 2)) >= 0.01).sum()) for method in methods
    ]
    return 1.02 * max(1, *visible, *(point.median or 0 for point in crosses))


def curve_style(method: Curve, methods: Sequence[Curve]) -> tuple[str, Any]:
    """Return the colour and the dash of a curve; no two curves of a plot share both.

    Shades of one kind of vote run from dark to light, dashes take turns.
    """
    family = [other for other in methods if other.family == method.family]
    place = family.index(method)
    depth = place / max(1, len(family) - 1)  # 0: darkest
    base = np.array([int(_COLORS[method.family][i : i + 2], 16) for i in (1, 3, 5)]) / 255
    shade = base * (0.62 + 0.38 * min(1.0, 2 * depth))
    shade += (1 - shade) * 0.3 * max(0.0, 2 * depth - 1)
    color = "#" + "".join(f"{round(255 * float(part)):02x}" for part in shade)
    return color, _DASHES[place % len(_DASHES)]


def leading(methods: Sequence[Curve]) -> list[bool]:
    """Return of each method whether it is best at some size, or by accuracy and median together.

    One that another equals there, and surpasses at other sizes only, does not lead.
    """
    sizes = np.arange(max(method.reach for method in methods) + 2)
    shares = np.array([method.certified(sizes) for method in methods])
    best = ((shares == shares.max(axis=0)) & (shares > 0)).any(axis=1)
    medians = np.array([[method.clean, _median(method)] for method in methods])
    return [
        bool(leads or not _surpassed(pair, medians)) and not _surpassed(own, shares)
        for leads, own, pair in zip(best, shares, medians, strict=True)
    ]


def _median(method: Curve) -> int:
    return -1 if method.median is None else method.median


def _surpassed(own: NDArray[Any], others: NDArray[Any]) -> bool:
    """Return whether some row is at least `own` everywhere and more somewhere."""
    return bool(((others >= own).all(axis=1) & (others > own).any(axis=1)).any())


def steps_back(methods: Sequence[Curve]) -> list[int]:
    """Return the places of the methods that a picture shows in grey."""
    if len(methods) <= _CROWDED:
        return []
    return [place for place, leads in enumerate(leading(methods)) if not leads]


def _draw(
    ax: Axes,
    method: Curve,
    style: tuple[str, Any],
    label: str,
    linewidth: float = 1.7,
    zorder: float = 2,
) -> None:
    sizes, shares, steps = curve(method)
    color, dash = style
    ax.plot(
        sizes,
        100 * shares,
        drawstyle=steps,
        color=color,
        linestyle=dash,
        linewidth=linewidth,
        zorder=zorder,
        label=label,
    )


def _number(
    ax: Axes, numbered: Mapping[int, Curve], crosses: Sequence[PublishedPoint], last: float
) -> None:
    """Write every curve's number on it, away from the crosses."""
    taken = [np.array([(cross.median or 0) / last, 0.5]) for cross in crosses]
    methods = list(numbered.values())
    places = mark_places([_corners(method, last) for method in methods], taken)
    for (number, method), (x, y) in zip(numbered.items(), places, strict=True):
        color, _ = curve_style(method, methods)
        ax.text(
            last * x,
            100 * y,
            str(number),
            color="0.1",
            fontsize=8,
            fontweight="bold",
            ha="center",
            va="center",
            zorder=5,
            bbox={
                "boxstyle": "circle,pad=0.15",
                "facecolor": "white",
                "edgecolor": color,
                "linewidth": 1.4,
            },
        )


def _corners(method: Curve, last: float) -> NDArray[np.float64]:
    """Return the visible part of a curve with both axes from 0 to 1."""
    sizes, shares, style = curve(method)
    if style == "steps-post":
        sizes, shares = np.repeat(sizes, 2)[1:], np.repeat(shares, 2)[:-1]
    seen = np.column_stack([sizes / last, shares])
    return seen[seen[:, 0] <= 1.0]


def _cross(ax: Axes, letter: str, point: PublishedPoint) -> None:
    """Mark a median of the paper; its letter stands above or below in turn."""
    ax.plot(
        [float(point.median or 0)],
        [50],
        "x",
        color="black",
        markersize=7,
        markeredgewidth=2,
        linestyle="none",
        zorder=6,
        label=f"{letter}  median, {point.title}",
    )
    above = letter in "acegi"
    ax.annotate(
        letter,
        (float(point.median or 0), 50),
        xytext=(0, 6 if above else -6),
        textcoords="offset points",
        ha="center",
        va="bottom" if above else "top",
        fontsize=8.5,
        fontweight="bold",
        zorder=6,
    )


def curve(
    method: Curve, most: int = 200
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
