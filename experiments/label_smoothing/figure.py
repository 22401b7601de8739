"""Figure 1 of the paper: SS-DPA against label-flip smoothing on MNIST, from committed results.

Run: python experiments/label_smoothing/figure.py
writes docs/assets/reproduction/figure-1.svg. Rows that were not run are left out.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from poisonproof.evaluation import CertifiedAccuracyDisplay
from poisonproof.reproduction import certify_result, read_result

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS = ("mnist-ssdpa-1200", "mnist-ssdpa-3000")
COLORS = ("#1f6f8b", "#c8553d", "0.25", "0.4", "0.55", "0.7")


def main() -> None:
    """Draw both methods on the same test images."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "poisonproof", "svg.fonttype": "path"})
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        ax = figure.subplots()
        colors = iter(COLORS)
        for name in ROWS:
            folder = ROOT / "experiments" / "results" / name
            if (folder / "result.json").is_file():
                result = read_result(folder)
                CertifiedAccuracyDisplay.from_certificates(
                    certify_result(result),
                    result.labels,
                    name=f"SS-DPA, k = {result.n_partitions:,}",
                    ax=ax,
                    color=next(colors),
                )
        for path in sorted(HERE.glob("results/q-*.json")):
            found = json.loads(path.read_text())
            color, curve = next(colors), np.array(found["certified_percent"])
            ax.plot(
                np.arange(len(curve)), curve, color=color, label=f"smoothing, q = {found['q']:g}"
            )
            ax.axhline(found["clean_percent"], color=color, linestyle="--", linewidth=0.8)
        ax.set_title("MNIST, flipped training labels", loc="left")
        ax.legend(loc="upper right", framealpha=0.9, edgecolor="none")
        ax.set_xlim(0, 1000)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    target = ROOT / "docs" / "assets" / "reproduction" / "figure-1.svg"
    target.write_bytes(buffer.getvalue())
    print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
