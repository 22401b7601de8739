"""The picture that explains the product: what is proved, what held, what fell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.attacks import AttackStudy, KindOutcome
from poisonproof.extras import needing
from poisonproof.report.figures import encoded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NO_ATTACK", "render_attack_figure", "surviving"]

NO_ATTACK = 0.7
"""Where size 0 stands on the logarithmic axis, so that a fall at size 1 can be seen."""

_PROVED, _HELD, _FELL = "#b9ded8", "#0b7a6f", "#c2410c"
_COLUMNS = 3


def surviving(kind: KindOutcome, sizes: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Return the share of attacked predictions that stand at each size.

    Returns
    -------
    dict
        ``"proved"`` by the certificate, and ``"protected"`` and ``"unprotected"`` as measured.

    Examples
    --------
    >>> from poisonproof.attacks import AttackedRow, Trace
    >>> from poisonproof.certificates import make_threat
    >>> row = AttackedRow(0, 2, 3, Trace((2, 4), (False, True)), Trace((1,), (True,)))
    >>> kind = KindOutcome("k", "K", make_threat("insert_delete"), (row,))
    >>> {name: share.tolist() for name, share in surviving(kind, np.array([1, 3])).items()}
    {'proved': [1.0, 0.0], 'protected': [1.0, 1.0], 'unprotected': [0.0, 0.0]}
    """
    radius = np.array([row.radius for row in kind.rows])
    shares = {"proved": (radius[:, None] >= sizes).mean(axis=0)}
    for which in ("protected", "unprotected"):
        firsts = [getattr(row, which).first for row in kind.rows]
        ends = np.array([np.inf if first is None else first for first in firsts])
        shares[which] = (ends[:, None] > sizes).mean(axis=0)
    return shares


def render_attack_figure(study: AttackStudy, form: str, title: str) -> bytes:
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


def _steps(kind: KindOutcome, limit: int) -> NDArray[np.int64]:
    """Return the sizes at which some share falls, and both ends."""
    firsts = [trace.first for row in kind.rows for trace in (row.protected, row.unprotected)]
    falls = [first for first in firsts if first is not None]
    return np.unique([0, limit, *falls, *(row.radius + 1 for row in kind.rows)])


def _panel(ax: Axes, kind: KindOutcome, limit: int) -> None:
    from matplotlib.ticker import FuncFormatter

    sizes = _steps(kind, limit)
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
