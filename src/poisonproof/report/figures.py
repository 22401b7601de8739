"""The report's pictures for slides and papers, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poisonproof.datasets.value_text import escaped
from poisonproof.evaluation import CertifiedAccuracyDisplay
from poisonproof.extras import needing
from poisonproof.report.evidence import Evidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "encoded", "render_figures"]

FORMATS = ("png", "svg")

_HELD, _WRONG, _PLAIN = "#0b7a6f", "#b8c0c7", "#51606e"
_MOST_BINS = 40


def render_figures(models: Sequence[Evidence], title: str) -> Iterator[tuple[str, bytes]]:
    """Yield file names and contents: the curve of all models, radii and partitions of each."""
    with needing("matplotlib", "report"):
        from matplotlib import rc_context
    with rc_context({"text.parse_math": False}):  # a name with a dollar sign is no formula
        pictures = [("certified-accuracy", _curves(models, title))]
        for number, model in enumerate(models):
            suffix = "" if len(models) == 1 else f"-{number + 1}"
            pictures.append((f"radii{suffix}", _radii(model)))
            if model.partition_sizes is not None:
                pictures.append((f"partitions{suffix}", _partitions(model)))
    for name, figure in pictures:
        for form in FORMATS:
            yield f"{name}.{form}", encoded(figure, form)


def _curves(models: Sequence[Evidence], title: str) -> Figure:
    figure, ax = _axes((7.2, 4.4), title)
    line: dict[str, Any] = {"color": _HELD} if len(models) == 1 else {}
    for model in models:
        if model.y_true is not None:
            CertifiedAccuracyDisplay.from_certificates(
                model.certificates, model.y_true, name=escaped(model.name), ax=ax, **line
            )
            continue
        sizes = np.arange(model.largest + 2)
        shares = [
            100 * model.tally.fixed.at(size) / model.tally.fixed.n_rows for size in sizes.tolist()
        ]
        name = escaped(model.name)
        ax.plot(sizes, shares, drawstyle="steps-post", linewidth=2.0, label=name, **line)
        ax.set_xlabel(f"Attack size ({model.certificates.threat.plural})")
        ax.set_ylabel("Predictions that cannot change (%)")
        ax.set_ylim(0, 102)
        ax.set_xlim(0)
        ax.legend(frameon=False)
    return figure


def _radii(model: Evidence) -> Figure:
    figure, ax = _axes((7.2, 3.4), f"Radii of all test rows: {model.name}")
    edges = _edges(0, model.largest + 1)
    kept = model.tally.kept.values
    everything = np.histogram(model.tally.fixed.values, edges)[0]
    part = np.histogram(kept, edges)[0]
    if model.y_true is not None:
        ax.stairs(everything, edges, fill=True, color=_WRONG, label="wrong")
    ax.stairs(
        part, edges, fill=True, color=_HELD, label="correct" if model.y_true is not None else None
    )
    ax.margins(x=0.01)
    ax.set_xlabel(f"Radius ({model.certificates.threat.plural})")
    ax.set_ylabel("Test rows")
    _count_in_whole_numbers(ax)
    if model.y_true is not None:
        ax.legend(frameon=False)
    return figure


def _partitions(model: Evidence) -> Figure:
    sizes = np.asarray(model.partition_sizes)
    figure, ax = _axes((7.2, 2.8), f"Training rows per partition: {model.name}")
    edges = _edges(int(sizes.min()), int(sizes.max()) + 1)
    ax.stairs(np.histogram(sizes, edges)[0], edges, fill=True, color=_PLAIN)
    ax.set_xlabel("Rows in a partition")
    ax.set_ylabel("Partitions")
    _count_in_whole_numbers(ax)
    return figure


def _count_in_whole_numbers(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.yaxis.set_major_locator(MaxNLocator(integer=True))


def _edges(low: int, high: int) -> Any:
    width = max(1, -(-(high - low) // _MOST_BINS))
    return np.arange(low, high + width, width)


def _axes(size: tuple[float, float], title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    ax = figure.subplots()
    ax.set_title(escaped(title), loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def encoded(figure: Figure, form: str) -> bytes:
    """Return a picture as ``"png"`` or ``"svg"``."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # Neither the day nor a random number goes into the file: the same report, the same bytes.
    with rc_context({"svg.hashsalt": "poisonproof"}):
        metadata = {"Date": None} if form == "svg" else {"Software": "poisonproof"}
        figure.savefig(buffer, format=form, dpi=160, metadata=metadata)
    return buffer.getvalue()
