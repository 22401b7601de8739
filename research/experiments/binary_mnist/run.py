"""Appendix B of the paper: MNIST 1 against 7, one label per member, two-means clusters.

Run: POISONPROOF_DATA=DIR python research/experiments/binary_mnist/run.py --out RESULT.json
DIR holds mnist.npz (x_train, y_train, x_test, y_test). The general estimator does the work: sorted
partitions with k = m, so that every member has one labelled image, and features that are the number
of the image's cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof import SSDPAClassifier
from poisonproof.evaluation import certified_accuracy, clean_accuracy
from poisonproof_research.methods.one_label import ClusterIndex, OneLabelClassifier

PAPER = {"clean_percent": 95.5, "label_flips": 5952, "m": 13007}


def load() -> tuple[Any, Any, Any, Any]:
    """Return the images of ones and sevens, pixels as published."""
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        parts = []
        for split in ("train", "test"):
            x, y = file[f"x_{split}"], file[f"y_{split}"]
            chosen = (y == 1) | (y == 7)
            parts += [x[chosen].reshape(int(chosen.sum()), -1), y[chosen]]
    return parts[0], parts[1], parts[2], parts[3]


def measure(elsewhere: str) -> dict[str, Any]:
    """Fit, certify and evaluate with one rule for the other cluster."""
    x, y, x_test, y_test = load()
    classifier = SSDPAClassifier(
        OneLabelClassifier(2, elsewhere), ClusterIndex(2), n_partitions=len(x), classes=[1, 7]
    )
    began = time.perf_counter()
    certificates = classifier.fit(x, y).certify(x_test)
    right = certificates.labels == y_test
    least = int(certificates.radius[right].min())
    return {
        "elsewhere": elsewhere,
        "m": len(x),
        "n_partitions": len(x),
        "n_test": len(x_test),
        "partition_sizes": [int(n) for n in np.unique(classifier.partition_sizes_)],
        "clean_percent": round(100 * clean_accuracy(certificates, y_test), 4),
        "least_radius_of_correct_images": least,
        "largest_radius_of_correct_images": int(certificates.radius[right].max()),
        "certified_percent_there": round(
            100 * float(certified_accuracy(certificates, y_test, [least])[0]), 4
        ),
        "share_of_labels_percent": round(100 * least / len(x), 2),
        "threat": certificates.threat.name,
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Measure both rules, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = [measure(rule) for rule in ("opposite", "abstain")]
    text = json.dumps({"paper": PAPER, "runs": found}, indent=1) + "\n"
    print(text, end="")
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
