"""Cost that the self-check of a model adds to its training.

    python benchmarks/self_check.py --out benchmarks/results/self_check.json

`DPAClassifier.fit_into` is timed with and without the check, in pairs, the first of the two in
turn; the median of the pairs' ratios of wall-clock time counts. The check starts one process and
trains max(1, 2 % of k) members again. scikit-learn's digits with k = 50; MNIST with k = 1,200,
if the folder in POISONPROOF_DATA holds mnist.npz.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.store.manifest import environment_here

MEMBERS = {"default": None, "decision tree": DecisionTreeClassifier()}


def rows() -> dict[str, tuple[Any, Any, int]]:
    """Return samples, labels and k of every training set that is there."""
    X, y = load_digits(return_X_y=True)
    found = {"digits": (X, y, 50)}
    path = Path(os.environ.get("POISONPROOF_DATA", ".")) / "mnist.npz"
    if path.exists():
        with np.load(path) as mnist:
            found["mnist"] = (mnist["x_train"].reshape(60_000, -1), mnist["y_train"], 1200)
    return found


def seconds(estimator: Any, X: Any, y: Any, k: int, checked: bool) -> float:
    """Return the seconds that one training into a folder takes."""
    classifier = DPAClassifier(estimator, n_partitions=k, classes=range(10))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        classifier.fit_into(Path(folder) / "model", X, y, self_check=checked)
        return time.perf_counter() - started


def main() -> None:
    """Time both and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="pairs of runs (default: 5)")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name, (X, y, k) in rows().items():
        for member, estimator in MEMBERS.items():
            pairs = []
            for turn in range(options.repeats):
                order = (True, False) if turn % 2 else (False, True)
                timed = {checked: seconds(estimator, X, y, k, checked) for checked in order}
                pairs.append((timed[True], timed[False]))
            ratios = [checked / plain for checked, plain in pairs]
            found[f"{name}, {member}"] = {
                "k": k,
                "ratio": round(float(np.median(ratios)), 3),
                "ratios": [round(ratio, 3) for ratio in ratios],
                "seconds with": round(float(np.median([pair[0] for pair in pairs])), 2),
                "seconds without": round(float(np.median([pair[1] for pair in pairs])), 2),
            }
            print(f"{name}, {member}: {found[f'{name}, {member}']['ratio']}", file=sys.stderr)
    text = json.dumps({"fits": found, "packages": environment_here()["packages"]}, indent=1)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
