"""Choose the least variance of `MixtureClusters`, on tables of scikit-learn and drawn ones.

    python research/experiments/row_votes/choose_floor.py --out research/experiments/row_votes/choose_floor.json

The adjusted Rand index of the clusters with the known classes, one cluster per class; the floor
with the largest mean is the default. scikit-learn's mixture, with its defaults, stands beside it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from poisonproof_research.methods.kmeans import KMeansClusters
from poisonproof_research.methods.mixture import MixtureClusters

FLOORS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
TABLES = ("iris", "wine", "breast_cancer", "digits")
BLOBS = ((1, 4), (2, 3), (2, 5), (2, 10), (2, 25), (5, 10), (10, 10), (50, 30))
FAR = (1e3, 1e4)


def tables() -> dict[str, tuple[Any, Any]]:
    """Return samples and classes of every table."""
    found = {}
    for name in TABLES:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        found |= {name: (X, y), f"{name}, scaled": (StandardScaler().fit_transform(X), y)}
    for d, k in BLOBS:
        found[f"{k} blobs in {d} columns"] = datasets.make_blobs(
            1000, d, centers=k, cluster_std=0.5, random_state=0
        )
    spreads = [0.1, 0.5, 1.0, 2.0, 0.3]
    found["blobs of many sizes"] = datasets.make_blobs(
        1000, 2, centers=5, cluster_std=spreads, random_state=1
    )
    X, y = datasets.make_blobs(1000, 4, centers=4, random_state=2)
    for far in FAR:
        name = f"blobs and one sample at {far:,.0f}"
        found[name] = (np.concatenate([X, np.full((1, 4), far)]), np.append(y, 4))
    return found


def main() -> None:
    """Try all floors on all tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = {}
    for name, (X, y) in tables().items():
        k = len(set(y))
        scikit = GaussianMixture(k, covariance_type="diag", n_init=4, random_state=0)
        clusters = {f"floor {floor}": MixtureClusters(k, floor=floor) for floor in FLOORS}
        clusters |= {"scikit-learn": scikit, "k-means": KMeansClusters(k)}
        results[name] = {
            kind: round(float(adjusted_rand_score(y, one.fit(X).predict(X))), 3)
            for kind, one in clusters.items()
        }
        print(name, results[name], flush=True)
    kinds = next(iter(results.values()))
    means = {kind: round(float(np.mean([r[kind] for r in results.values()])), 4) for kind in kinds}
    best = max((f"floor {floor}" for floor in FLOORS), key=means.__getitem__)
    print("mean", means, "best:", best)
    if options.out:
        command = "python research/experiments/row_votes/choose_floor.py"
        report = {"command": command, "best": best, "means": means, "results": results}
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
