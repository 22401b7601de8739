"""The baseline of the paper's figure 1: label-flip smoothing of a linear classifier on MNIST.

Run: POISONPROOF_DATA=DIR python research/experiments/label_smoothing/run.py --out FILE
writes clean accuracy and the certified accuracy at every attack size for three q, some minutes
each on one core. `figure.py` draws them with the committed SS-DPA rows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof_research.baselines import LabelSmoothingClassifier


def smoothed(q: float, ridge: float) -> LabelSmoothingClassifier:
    """Return the classifier; with 60,000 rows sums are nearly normal, so one tilt will do."""
    return LabelSmoothingClassifier(q, ridge, classes=range(10), tilts=(0.9,))


def measure(q: float, ridge: float, n_test: int) -> dict[str, Any]:
    """Fit on all training images, certify the test images."""
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        x, y = file["x_train"].reshape(-1, 784) / 255.0, file["y_train"]
        x_test = file["x_test"][:n_test].reshape(-1, 784) / 255.0
        y_test = file["y_test"][:n_test]
    began = time.perf_counter()
    found = smoothed(q, ridge).fit(x, y).certify(x_test)
    seconds = time.perf_counter() - began
    sizes = np.arange(int(found.radius.max()) + 2)
    curve = found.certified_accuracy(y_test, sizes)
    half = np.flatnonzero(curve >= 0.5)
    return {
        "method": "label-flip smoothing of ridge regression on pixels",
        "q": q,
        "ridge": ridge,
        "n_test": len(y_test),
        "clean_percent": round(100 * float((found.labels == y_test).mean()), 2),
        "certified_percent_at_one_flip": round(100 * float(curve[1]), 2),
        "median_radius": int(half[-1]) if len(half) else None,
        "largest_radius": int(found.radius.max()),
        "seconds": round(seconds, 1),
        "certified_percent": [round(100 * float(value), 2) for value in curve],
    }


def main() -> None:
    """Measure every q, print the numbers and write the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--q", type=float, nargs="+", default=[0.1, 0.3, 0.5])
    parser.add_argument("--ridge", type=float, default=1.0)
    parser.add_argument("--n-test", type=int, default=10000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = [measure(q, given.ridge, given.n_test) for q in given.q]
    for one in found:
        print({name: value for name, value in one.items() if name != "certified_percent"})
    if given.out is not None:
        lines = ",\n".join(map(json.dumps, found))
        given.out.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
