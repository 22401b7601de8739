"""Draw certified accuracy against attack size on MNIST, with the points the paper printed.

Run: python research/experiments/closed_form/figure.py --results benchmarks/results/closed_form_mnist.json
     --out FIGURE.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure


def main() -> None:
    """Draw one curve per k, and the paper's points in the same colour."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    report = json.loads(options.results.read_text(encoding="utf-8"))
    figure = Figure(figsize=(7, 4), layout="constrained")
    ax = figure.subplots()
    furthest = 0
    for run in report["runs"]:
        curve = run["curve"]
        alive = [size for size, share in zip(*curve.values(), strict=True) if share > 0]
        furthest = max(furthest, alive[-1])
        label = f"k = {run['k']:,}: median {run['median_radius']}"
        (line,) = ax.plot(curve["sizes"], curve["certified_accuracy"], label=label)
        printed = report["paper"].get(str(run["k"]))
        if printed:
            ax.plot(
                [0, printed["median"]],
                [printed["clean"], 0.5],
                linestyle="none",
                marker="o",
                color=line.get_color(),
                label=f"paper, k = {run['k']:,}: median {printed['median']}",
            )
    ax.axhline(0.5, color="0.6", linewidth=0.8, zorder=0)
    ax.set(
        xlabel="training rows inserted or deleted",
        ylabel="certified accuracy",
        ylim=(0, 1),
        xlim=(0, 1.05 * furthest),
        title="MNIST, kernel ridge members on orientation histograms",
    )
    ax.legend(frameon=False, fontsize=8)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
