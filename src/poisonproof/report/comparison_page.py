"""The comparison: curves, tables, how to train each method; as HTML and JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import poisonproof
from poisonproof.certificates.threats import parse_threat
from poisonproof.evaluation.accuracy import majority_share, round_sizes
from poisonproof.evaluation.comparison import FAMILIES, Method
from poisonproof.exceptions import needing
from poisonproof.files import write_together
from poisonproof.report.charts import encoded
from poisonproof.report.document import assets, template

PAGE, RESULTS = "comparison.html", "comparison.json"
_DASHES: tuple[Any, ...] = ("-", (0, (7, 2)), (0, (3, 1.6)), (0, (1.2, 1.2)), (0, (7, 2, 1.5, 2)))


def write_comparison(
    methods: Sequence[Method], out: Path, command: str, head: str = ""
) -> list[Path]:
    """Write the page that `command` makes and its results; return their paths.

    The Python of the methods follows that of `head`, which imports and reads.
    """
    order = list(FAMILIES)
    ordered = sorted(methods, key=lambda m: (m.threat, order.index(m.family)))
    groups = {threat: list(found) for threat, found in groupby(ordered, lambda m: m.threat)}
    tables = [_table(threat, found) for threat, found in groups.items()]
    files = {
        out / PAGE: _html(tables, _picture(groups), command, head).encode(),
        out / RESULTS: json.dumps(_results(ordered, command, head), indent=1).encode() + b"\n",
    }
    out.mkdir(parents=True, exist_ok=True)
    write_together(files)
    return list(files)


@dataclass(frozen=True)
class _Table:
    """The methods against one threat: attack sizes, and certified accuracy by method and size."""

    threat: str
    plural: str
    methods: Sequence[Method]
    sizes: list[int]
    shares: NDArray[np.float64]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What a table shows of every method; a cell is a text, and whether it is the best."""
        best = _best(self.methods, self.shares)
        return [
            {
                "title": method.title,
                "settings": method.settings,
                "median": "none" if method.median is None else f"{method.median:,}",
                "balanced": f"{100 * method.summary.balanced_accuracy:.1f} %",
                "classes": _classes(method),
                "worthy": method.summary.worthy,
                "cells": [
                    (f"{100 * share:.1f} %", bool(share == top > 0) and method.summary.worthy)
                    for share, top in zip(line, best, strict=True)
                ],
                "train": method.train,
                "python": method.python,
            }
            for method, line in zip(self.methods, self.shares, strict=True)
        ]


def _best(methods: Sequence[Method], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the best share at each size: what always predicts one class withstands everything."""
    found: NDArray[np.float64] = np.max(
        shares, axis=0, initial=0.0, where=np.array([[method.summary.worthy] for method in methods])
    )
    return found


def _classes(method: Method) -> str:
    """Return the recall of every class, and what of it an attack of the median radius leaves."""
    size = method.median or 0
    each = (
        f"{found.label} {100 * found.recall:.1f} % ({100 * found.certified:.1f} %)"
        for found in method.summary.classes
    )
    return f"Recall by class, and certified at {size:,}: {', '.join(each)}."


def _table(threat: str, methods: Sequence[Method]) -> _Table:
    sizes = _attack_sizes(methods)
    shares = np.stack([method.certified(sizes) for method in methods])
    return _Table(threat, parse_threat(threat).plural, methods, sizes, shares)


def _html(tables: list[_Table], picture: bytes, command: str, head: str) -> str:
    first = tables[0].methods[0]
    page: str = template("comparison.html").render(
        assets()
        | {
            "version": poisonproof.__version__,
            "title": first.dataset_title,
            "n_test": len(first.y_true),
            "n_train": first.facts["n_train"],
            "majority": f"{100 * majority_share(first.y_true):.1f} %",
            "tables": tables,
            "picture": f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}",
            "command": command,
            "head": head,
        }
    )
    return page


def _attack_sizes(methods: Sequence[Method]) -> list[int]:
    """Return 0, 1, 2, 5, 10, 20, ... up to where the best method has a tenth left."""
    sizes = np.arange(max(method.reach for method in methods) + 1)
    left = np.max([method.certified(sizes) for method in methods], axis=0)
    last = max(1, int((left >= 0.1).sum()) - 1)
    return round_sizes(last)


def _results(methods: Sequence[Method], command: str, head: str) -> dict[str, Any]:
    return {
        "command": command,
        "version": poisonproof.__version__,
        "python": head,
        "methods": [
            {
                "name": method.id,
                "family": method.family,
                "title": method.title,
                "settings": method.settings,
                "train": method.train,
                "python": method.python,
                "threat": method.threat,
                "n_test": len(method.y_true),
                **method.facts,
                "clean_accuracy": method.clean,
                "balanced_accuracy": method.summary.balanced_accuracy,
                "classes": [vars(found) for found in method.summary.classes],
                "median_radius": method.median,
                "certified_accuracy": [
                    {"size": int(size), "accuracy": float(share)}
                    for size, share in zip(*_corners(method), strict=True)
                ],
            }
            for method in methods
        ],
    }


def _corners(method: Method) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the attack sizes at which the certified accuracy falls, and its new values."""
    sizes = np.arange(method.reach + 2)
    shares = method.certified(sizes)
    corners = np.flatnonzero(np.diff(shares, prepend=2.0))
    return sizes[corners], shares[corners]


def _picture(groups: dict[str, list[Method]]) -> bytes:
    """Draw one panel per threat; methods never best, or that learned little, are thin and grey."""
    with needing("matplotlib", "report"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "path"})
        figure = Figure(figsize=(10.0, 4.4 * len(groups)), layout="constrained")
        panels = figure.subplots(len(groups), squeeze=False).ravel()
        for ax, (threat, methods) in zip(panels, groups.items(), strict=True):
            _panel(ax, methods, parse_threat(threat).plural)
        return encoded(figure, "svg")


def _panel(ax: Any, methods: Sequence[Method], unit: str) -> None:
    sizes = np.arange(max(method.reach for method in methods) + 2)
    shares = np.stack([method.certified(sizes) for method in methods])
    best = ((shares == _best(methods, shares)) & (shares > 0)).any(axis=1)
    best &= [method.summary.worthy for method in methods]
    places: dict[str, int] = {}
    grey = "never best, or hardly better\nthan the commonest class"
    for method, leads in zip(methods, best, strict=True):
        corners, heights = _corners(method)
        style: dict[str, Any] = {"color": "0.8", "linewidth": 0.8, "label": grey, "zorder": 1}
        if leads:
            place = places[method.family] = places.get(method.family, -1) + 1
            dash, color = _DASHES[place % len(_DASHES)], FAMILIES[method.family]
            style = {"color": color, "linestyle": dash, "linewidth": 1.7, "label": method.title}
        else:
            grey = "_"  # one line of the legend for all of them
        ax.plot(corners, 100 * heights, drawstyle="steps-post", **style)
    base = 100 * majority_share(methods[0].y_true)
    ax.axhline(base, color="0.5", linewidth=0.8, linestyle=":", label="commonest class alone")
    ax.set(xlabel=f"Attack size ({unit})", ylabel="Certified accuracy (%)", ylim=(0, 102))
    ax.set_xlim(0, 1.02 * max(1, int((shares.max(axis=0) >= 0.01).sum())))
    ax.grid(color="0.92")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5)
