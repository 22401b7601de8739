"""Figure 1 of the paper: SS-DPA against label-flip smoothing on MNIST, from committed results.

Run: python research/experiments/label_smoothing/figure.py
writes figure-1.svg (rows that were not run are left out) and, for appendix C, appendix-c.svg to
research/results (not committed).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poisonproof.evaluation import CertifiedAccuracyDisplay
from poisonproof_research.baselines import plot_poisoned_shares
from poisonproof_research.reproduction import certify_result, read_result

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS = ("mnist-ssdpa-1200", "mnist-ssdpa-3000")
COLORS = ("#1f6f8b", "#c8553d", "0.25", "0.4", "0.55", "0.7")


def write(name: str, size: tuple[float, float], draw: Callable[[Axes], object]) -> None:
    """Draw one figure and write it; the same results give the same bytes."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "poisonproof", "svg.fonttype": "path"})
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    target = ROOT / "results" / f"{name}.svg"
    target.write_bytes(buffer.getvalue())
    print(target.relative_to(ROOT))


def certified_accuracies(ax: Axes) -> None:
    """Draw both methods on the same test images."""
    colors = iter(COLORS)
    for name in ROWS:
        folder = ROOT / "results" / name
        if (folder / "result.json").is_file():
            result = read_result(folder)
            CertifiedAccuracyDisplay.from_certificates(
                certify_result(result),
                result.labels,
                name=f"SS-DPA, k = {result.n_partitions:,}",
                ax=ax,
                color=next(colors),
            )
    for found in json.loads((HERE / "results.json").read_text()):
        color, curve = next(colors), np.array(found["certified_percent"])
        ax.plot(np.arange(len(curve)), curve, color=color, label=f"smoothing, q = {found['q']:g}")
        ax.axhline(found["clean_percent"], color=color, linestyle="--", linewidth=0.8)
    ax.set_title("MNIST, flipped training labels", loc="left")
    # Below: inside it would hide the curves.
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, edgecolor="none")
    ax.set_xlim(0, 1000)


def main() -> None:
    """Write both figures."""
    write("figure-1", (6.4, 5.2), certified_accuracies)
    write("appendix-c", (6.4, 4.2), lambda ax: plot_poisoned_shares(ax=ax))


if __name__ == "__main__":
    main()
