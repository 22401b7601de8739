"""Choose features and regularisation on scikit-learn's digits, never on the data to be certified.

The 8 x 8 digits are enlarged to 20 x 20 in a 28 x 28 frame. For every setting, members are trained
on random sets of 20 and 50 training digits (the sizes of MNIST partitions at k = 3,000 and 1,200)
and asked about held-out digits. Of the settings whose mean accuracy of a single member is within
0.1 % of the best, the one with the fewest columns and the largest ridge is chosen;
poisonproof/estimators/recipes.py holds what it chose.

Run: python research/experiments/closed_form/choose.py --out research/experiments/closed_form/choose.json
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from poisonproof.features import Deskew, OrientationHistogram

SIZES = {20: 120, 50: 60}
GAMMAS = (0.5, 1.0, 2.0, 4.0)
ALPHAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
HISTOGRAMS = [
    {"n_orientations": o, "cell": c, "block": b, "signed": s, "root": r}
    for o, c, b, s, r in itertools.product(
        (6, 8, 12), (3, 4, 5), (1, 2), (True, False), (True, False)
    )
]


def enlarged_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return digits as images of shape (1797, 28, 28) in [0, 255] and their labels."""
    digits = load_digits()
    images = zoom(
        digits.images / 16 * 255, (1, 2.5, 2.5), order=3, mode="grid-constant", grid_mode=True
    )
    framed = np.zeros((len(images), 28, 28), dtype=np.float32)
    framed[:, 4:24, 4:24] = np.clip(images, 0, 255)
    return framed, digits.target


def member_accuracy(features: np.ndarray, y: np.ndarray, gamma: float) -> dict[float, float]:
    """Return, for each alpha, the mean accuracy of kernel ridge members of both sizes."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, test = order[:1200], order[1200:]
    inner = features @ features.T
    square = np.diag(inner)
    kernel = np.exp(-gamma * (square[:, None] + square - 2 * inner))
    right = {alpha: [] for alpha in ALPHAS}
    for size, members in SIZES.items():
        hits = {alpha: [] for alpha in ALPHAS}
        for _ in range(members):
            rows = rng.choice(train, size, replace=False)
            targets = np.eye(10)[y[rows]]
            values, vectors = np.linalg.eigh(kernel[np.ix_(rows, rows)])
            asked = kernel[np.ix_(test, rows)] @ vectors
            for alpha in ALPHAS:
                scores = (asked / (values + alpha)) @ (vectors.T @ targets)
                hits[alpha].append(np.mean(scores.argmax(1) == y[test]))
        for alpha in ALPHAS:
            right[alpha].append(float(np.mean(hits[alpha])))
    return {alpha: float(np.mean(both)) for alpha, both in right.items()}


def main() -> None:
    """Try all settings and write them down, best first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    images, y = enlarged_digits()
    results = []
    for deskew in (True, False):
        frames = Deskew().transform(images).reshape(images.shape) if deskew else images
        for histogram in HISTOGRAMS:
            features = OrientationHistogram(**histogram).transform(frames).astype(np.float64)
            for gamma in GAMMAS:
                for alpha, accuracy in member_accuracy(features, y, gamma).items():
                    results.append(
                        {
                            "accuracy": round(accuracy, 5),
                            "deskew": deskew,
                            "columns": features.shape[1],
                            **histogram,
                            "gamma": gamma,
                            "alpha": alpha,
                        }
                    )
    results.sort(key=lambda one: (-one["accuracy"], one["columns"]))
    close = [one for one in results if one["accuracy"] >= results[0]["accuracy"] - 0.001]
    chosen = min(close, key=lambda one: (one["columns"], -one["alpha"], -one["accuracy"]))
    report = {
        "command": "python research/experiments/closed_form/choose.py",
        "data": "scikit-learn digits, enlarged",
        "settings_tried": len(results),
        "chosen": chosen,
        "best": results[:40],
    }
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(chosen)


if __name__ == "__main__":
    main()
