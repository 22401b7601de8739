"""Charts of the page as numbers in percent of the plot, which the template draws as plain SVG.

Hand-written, because the charts fit any screen and follow a slider on a page that loads nothing;
plotting libraries would add large scripts. Matplotlib draws the picture of attacks.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.attacks.study import AttackStudy, KindOutcome
from poisonproof.evaluation.accuracy import Radii, Tally
from poisonproof.evaluation.surface import Surface
from poisonproof.exceptions import needing
from poisonproof.report.evidence import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_BARS = 40
_MOST_COLUMNS = 10
_SIDE = 1000


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, in percent, and what it says."""

    at: str
    text: str


@dataclass(frozen=True)
class Bar:
    """One bar in percent of the plot, from the top; its lower part has another colour."""

    x: str
    width: str
    y: str
    height: str
    part_y: str
    part_height: str


def curve_path(radii: Radii, domain: int) -> str:
    """Return the share of rows that withstand each size, in a box of 1000 by 1000 units.

    The box is about as large as on the screen: browsers smear lines that they stretch far.

    >>> curve_path(Radii.of(np.array([0, 2])), domain=4)
    'M0 0H250V500H750V1000H1000'
    """
    steps = [f"M0 {_height(radii.at(0), radii.n_rows)}"]
    for radius in np.unique(radii.values).tolist():
        if radius + 1 < domain:
            steps.append(
                f"H{_place(radius + 1, domain)}V{_height(radii.at(radius + 1), radii.n_rows)}"
            )
    return "".join([*steps, f"H{_SIDE}"])


def radius_bars(tally: Tally, domain: int) -> dict[str, tuple[Bar, ...] | tuple[Tick, ...]]:
    """Return the histogram of radii: all predictions, and as a part of them the rows kept."""
    width = max(1, -(-domain // _MOST_BARS))
    edges = np.arange(0, domain + width, width)
    counts, parts = (np.histogram(r.values, edges)[0] for r in (tally.fixed, tally.kept))
    step = round_step(int(counts.max(initial=1)) / 4)
    top = max(step, -(-int(counts.max(initial=1)) // step) * step)
    bars = tuple(
        Bar(
            x=_percent(int(left) / domain),
            width=_percent((min(int(right), domain) - int(left)) / domain),
            y=_percent(1 - count / top),
            height=_percent(count / top),
            part_y=_percent(1 - part / top),
            part_height=_percent(part / top),
        )
        for left, right, count, part in zip(edges, edges[1:], counts, parts, strict=False)
        if count
    )
    heights = range(0, top + 1, step)
    y_ticks = tuple(Tick(_percent(1 - height / top), f"{height:,}") for height in heights)
    return {"bars": bars, "y_ticks": y_ticks}


@dataclass(frozen=True)
class HeatCell:
    """One cell of a heat map: its text, its shade from 0 to 10, and whether half withstand it."""

    text: str
    shade: int
    half: bool


def heat_map(surface: Surface) -> dict[str, Any]:
    """Return the share of rows that withstand r units and f features, as a table of shades.

    >>> from poisonproof.certificates import certify_grid
    >>> from poisonproof.partition import Blocks
    >>> certificates = certify_grid([[[0, 0, 0], [0, 0, 0], [0, 0, 1]]], n_classes=2)
    >>> found = heat_map(Surface.of(certificates, Blocks(n_blocks=3, widths=(1, 1, 1))))
    >>> found["sizes"], [[cell.text for cell in line] for _, line in found["lines"]]
    ([0, 1, 2], [['100.0 %', '100.0 %', '0.0 %'], ['100.0 %', '0.0 %', '0.0 %']])
    """
    step = round_step((surface.largest + 1) / _MOST_COLUMNS)
    sizes = list(range(0, surface.largest + step + 1, step))
    numbers = surface.lines()
    lines = [[_heat_cell(surface.kept[f], size) for size in sizes] for f in numbers]
    return {"sizes": sizes, "lines": list(zip(numbers, lines, strict=True))}


def _heat_cell(radii: Radii, size: int) -> HeatCell:
    kept, whole = radii.at(size), radii.n_rows
    return HeatCell(percent(kept, whole), round(10 * kept / whole), 2 * kept >= whole)


def count_ticks(high: int) -> tuple[Tick, ...]:
    """Return ticks at round integers from 0 to `high`.

    >>> [tick.text for tick in count_ticks(22)]
    ['0', '5', '10', '15', '20']
    """
    values = range(0, high + 1, round_step(high / 6))
    return tuple(Tick(_percent(value / high), f"{value:,}") for value in values)


def round_step(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is not below `least`.

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
    return _place(whole - part, whole)


def _place(part: int, whole: int) -> str:
    return f"{_SIDE * part / whole:.6g}"


def _percent(share: float) -> str:
    return f"{100 * share:.6g}%"


_PROVED, _HELD, _FELL = "#b9ded8", "#0b7a6f", "#c2410c"


def encoded(figure: Figure, form: str) -> bytes:
    """Return a picture as ``"png"`` or ``"svg"``."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # Neither the day nor a random number goes into the file: the same report, the same bytes.
    with rc_context({"svg.hashsalt": "poisonproof"}):
        metadata = {"Date": None} if form == "svg" else {"Software": "poisonproof"}
        figure.savefig(buffer, format=form, dpi=160, metadata=metadata)
    return buffer.getvalue()


# The picture that explains the product: what is proved, what held, what fell.

NO_ATTACK = 0.7
"""Place of size 0 on the logarithmic axis, so that a fall at size 1 can be seen."""

_COLUMNS = 3


def surviving(kind: KindOutcome, sizes: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Return the share of attacked predictions that stand at each size: proved, and measured."""
    radius = np.array([row.radius for row in kind.rows])
    shares = {"proved": (radius[:, None] >= sizes).mean(axis=0)}
    for which in ("protected", "unprotected"):
        firsts = [getattr(row, which).first for row in kind.rows]
        ends = np.array([np.inf if first is None else first for first in firsts])
        shares[which] = (ends[:, None] > sizes).mean(axis=0)
    return shares


def render_attack_figure(study: AttackStudy, form: str, title: str = "") -> bytes:
    """Return one panel per kind of attack, as ``"png"`` or ``"svg"``."""
    with needing("matplotlib", "report"):
        from matplotlib.figure import Figure
    columns = min(_COLUMNS, len(study.kinds))
    rows = -(-len(study.kinds) // columns)
    figure = Figure(figsize=(4.0 * columns, 2.9 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for ax, kind in zip(axes, study.kinds, strict=False):
        _panel(ax, kind, study.limit)
    for ax in axes[::columns]:
        ax.set_ylabel("Predictions that stand (%)")
    for ax in axes[len(study.kinds) :]:
        ax.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, parse_math=False)
    return encoded(figure, form)


def _panel(ax: Axes, kind: KindOutcome, limit: int) -> None:
    from matplotlib.ticker import FuncFormatter

    ends = [trace.first for row in kind.rows for trace in (row.protected, row.unprotected)]
    falls = [first for first in ends if first is not None]
    sizes = np.unique([0, limit, *falls, *(row.radius + 1 for row in kind.rows)])
    shares = surviving(kind, sizes)
    places = np.maximum(sizes, NO_ATTACK)
    ax.fill_between(
        places, 100 * shares["proved"], step="post", color=_PROVED, label="proved, whatever happens"
    )
    styles: dict[str, dict[str, Any]] = {
        "protected": {"color": _HELD},
        "unprotected": {"color": _FELL, "linestyle": (0, (4, 2))},
    }
    for name, style in styles.items():
        ax.plot(
            places,
            100 * shares[name],
            drawstyle="steps-post",
            linewidth=2.2,
            label=f"{name} model, attacked",
            **style,
        )
    ax.set_xscale("log")
    ax.set_xlim(NO_ATTACK, limit)
    ax.set_ylim(0, 103)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_title(kind.title, loc="left", fontsize=10.5)
    ax.set_xlabel(kind.threat.plural.capitalize())
    ax.grid(axis="y", color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
