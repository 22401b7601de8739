"""Choose features and neighbourhoods on scikit-learn's digits, never on the data to be certified.

The 8 x 8 digits are enlarged to 20 x 20 in a 28 x 28 frame, as in research/experiments/closed_form.

Neighbour votes: every digit is asked with all others as training rows, for neighbourhoods of 2 to
11 % of all pairs. A setting's merit is its largest median radius at a clean accuracy of at least
93.4, 95.5 and 97 %, added up. Of the settings within 2 % of the best, the one with the fewest
columns is chosen.

Cluster votes: ten spectral clusters of all digits, matched one-to-one. For the features of the
neighbour votes and of the closed-form members (poisonproof/estimators/recipes.py), the accuracy
for every number of neighbours; the best one is chosen, of equal ones the larger number.

Run: python research/experiments/row_votes/choose.py --out research/experiments/row_votes/choose.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof.certificates import certify_row_votes
from poisonproof.evaluation import clean_accuracy, median_radius
from poisonproof.exceptions import InvalidInputError
from poisonproof.features import Deskew, OrientationHistogram
from poisonproof.members.clusters import SpectralClusters, best_assignment

sys.path.insert(0, str(Path(__file__).parents[1] / "closed_form"))
from choose import enlarged_digits

FLOORS = (0.934, 0.955, 0.97)
SHARES = (0.02, 0.025, *np.round(np.arange(0.03, 0.0951, 0.005), 3).tolist(), 0.10, 0.11)
NEIGHBORS = (5, 7, 10, 15, 20, 30, 40, 50)
HISTOGRAMS = [
    {"n_orientations": o, "cell": c, "block": b, "signed": s, "root": r}
    for o, c, b, s, r in itertools.product(
        (6, 8, 12), (3, 4, 5, 7), (1, 2, 3), (True, False), (True, False)
    )
]
CLOSED_FORM = {"n_orientations": 8, "cell": 4, "block": 1, "signed": True, "root": True}


def neighbor_merit(features: np.ndarray, y: np.ndarray) -> dict[str, int]:
    """Return the largest median radius at each floor of clean accuracy."""
    n = len(y)
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    cosines = unit @ unit.T
    thresholds = np.quantile(cosines[np.triu_indices(n, 1)], 1 - np.array(SHARES))
    np.fill_diagonal(cosines, -2.0)
    merit = {str(floor): 0 for floor in FLOORS}
    for threshold in thresholds:
        counts = ((cosines >= threshold).astype(np.float32) @ np.eye(10)[y]).astype(np.int64)
        certificates = certify_row_votes(counts, n - 1)
        clean, median = clean_accuracy(certificates, y), median_radius(certificates, y) or 0
        for floor in FLOORS:
            if clean >= floor:
                merit[str(floor)] = max(merit[str(floor)], median)
    return merit


def cluster_accuracy(features: np.ndarray, y: np.ndarray, n_neighbors: int) -> float:
    """Return the share of digits whose cluster was matched to their class."""
    found = SpectralClusters(10, n_neighbors=n_neighbors).fit(features).labels_
    table = np.zeros((10, 10), dtype=np.int64)
    np.add.at(table, (found, y), 1)
    return float(np.mean(best_assignment(table, "one_to_one")[found] == y))


def main() -> None:
    """Try all settings and write them down, best first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    images, y = enlarged_digits()
    upright = Deskew().transform(images).reshape(images.shape)
    tried: list[dict[str, Any]] = []
    for deskew, histogram in itertools.product((True, False), HISTOGRAMS):
        try:
            features = OrientationHistogram(**histogram).transform(upright if deskew else images)
        except InvalidInputError:  # blocks larger than the image
            continue
        merit = neighbor_merit(features.astype(np.float64), y)
        setting = {"deskew": deskew, **histogram, "columns": features.shape[1]}
        tried.append({"merit": sum(merit.values()), "medians": merit, **setting})
    tried.sort(key=lambda one: (-one["merit"], one["columns"]))
    close = [one for one in tried if one["merit"] >= 0.98 * tried[0]["merit"]]
    chosen = min(close, key=lambda one: (one["columns"], -one["merit"]))
    own = {name: chosen[name] for name in CLOSED_FORM}
    clusters: list[dict[str, Any]] = []
    for name, histogram in (("neighbour votes", own), ("closed form", CLOSED_FORM)):
        features = OrientationHistogram(**histogram).transform(upright)
        clusters += [
            {
                "features": name,
                "n_neighbors": count,
                "accuracy": round(cluster_accuracy(features, y, count), 4),
            }
            for count in NEIGHBORS
        ]
    best = max(clusters, key=lambda one: (one["accuracy"], one["n_neighbors"]))
    report = {
        "command": "python research/experiments/row_votes/choose.py --out research/experiments/row_votes/choose.json",
        "data": "scikit-learn digits, enlarged",
        "neighbor_votes": {"settings_tried": len(tried), "chosen": chosen, "best": tried[:20]},
        "cluster_votes": {"chosen": best, "tried": clusters},
    }
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"neighbor_votes": chosen, "cluster_votes": best}, indent=1))


if __name__ == "__main__":
    main()
