"""Comparison of default members for tables: a decision tree or a closed form.

    python research/experiments/closed_form/default_member.py --out FILE

Every table is drawn or shuffled ten times (the large ones three times) and cut into training rows
and at most 1,000 test rows. Clean accuracy and median radius under insertions and deletions,
partitions by content, all members with their defaults. The settings of `ScaledKernelClassifier`
were chosen while looking at the tables of `LOOKED_AT`, and at none of `FRESH`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.evaluation import clean_accuracy, median_radius
from poisonproof.exceptions import MemberWarning
from poisonproof.members.closed_form import RidgeClassifier, ScaledKernelClassifier

Table = tuple[Any, Any]
COMMAND = (
    "python research/experiments/closed_form/default_member.py --out "
    "research/experiments/closed_form/default_member.json"
)
MEMBERS = {
    "scaled kernel": ScaledKernelClassifier(),
    "decision tree": DecisionTreeClassifier(),
    "ridge": RidgeClassifier(),
}


def forest(rng: np.random.Generator, n: int = 12_000) -> Table:
    """Six kinds of forest by height, distances, soils (one-hot), a timestamp and a constant."""
    height, slope, aspect = rng.normal(2800, 300, n), np.abs(rng.normal(14, 8, n)), rng.random(n)
    water, road, fire = np.abs(rng.normal(0, 250, n)), rng.gamma(2, 1200, n), rng.gamma(2, 900, n)
    shade = 220 - 1.5 * slope + 20 * np.sin(6.28 * aspect) + rng.normal(0, 8, n)
    soil, area = rng.integers(0, 20, n), rng.integers(0, 4, n)
    time, trace = 1.6e9 + 3e7 * rng.random(n), rng.normal(0, 1e-5, n)
    fits = [
        -np.abs(height - 2300) / 200 + (soil % 5 == 0),
        -np.abs(height - 2750) / 220 + 0.7 * (road > 2500),
        -np.abs(height - 3150) / 250 + 0.8 * (area == 2),
        -np.abs(height - 2600) / 300 + 1.2 * (slope > 18) - 0.3,
        -np.abs(height - 3400) / 200 + 0.3 * (water < 150),
        -np.abs(height - 2400) / 300 + 1.1 * (shade < 190) + 0.5 * (trace > 1e-5) - 0.2,
    ]
    numbers = [height, slope, 360 * aspect, water, road, fire, shade, time, trace, np.full(n, 7.0)]
    X = np.column_stack([*numbers, np.eye(20)[soil], np.eye(4)[area]])
    return X, np.argmax(np.stack(fits) + rng.gumbel(0, 0.35, (6, n)), axis=0)


def rules(rng: np.random.Generator, n: int = 6_000) -> Table:
    """Labels by thresholds on four of ten columns, one label in twenty wrong: made for trees."""
    income, age, calls = rng.lognormal(10, 1, n), rng.integers(18, 80, n), rng.poisson(3, n)
    flag, other = rng.integers(0, 2, n), rng.standard_normal((n, 5))
    y = (income > 2.5e4) & (age > 30) | (calls > 5) & (flag == 1)
    X = np.column_stack([income, age, calls, flag, rng.lognormal(0, 2, n), other])
    return X, (y ^ (rng.random(n) < 0.05)).astype(int)


def holes(rng: np.random.Generator) -> Table:
    """Breast cancer data of which a fifth of the cells are missing."""
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return np.where(rng.random(X.shape) < 0.2, np.nan, X), y


def clusters(rng: np.random.Generator) -> Table:
    """Four classes of two clusters each, in units from 1e-4 to 1e4."""
    X, y = datasets.make_classification(
        6_000, 30, n_informative=8, n_redundant=4, n_classes=4, random_state=_seed(rng)
    )
    return X * np.logspace(-4, 4, 30), y


def curve(rng: np.random.Generator) -> Table:
    """Friedman's first function, cut into thirds."""
    X, y = datasets.make_friedman1(5_000, 10, noise=1.0, random_state=_seed(rng))
    return X, np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))


def sphere(rng: np.random.Generator) -> Table:
    """Inside or outside of a sphere in ten dimensions."""
    X, y = datasets.make_hastie_10_2(8_000, random_state=_seed(rng))
    return X, (y > 0).astype(int)


def shells(rng: np.random.Generator) -> Table:
    """Five shells in six dimensions, beside six columns that mean nothing."""
    X, y = datasets.make_gaussian_quantiles(
        n_samples=6_000, n_features=6, n_classes=5, random_state=_seed(rng)
    )
    return np.hstack([X, rng.standard_normal((6_000, 6))]), y


def steps(rng: np.random.Generator, n: int = 6_000) -> Table:
    """A score of counts and amounts, each in steps, and a little noise."""
    counts, amounts = rng.poisson(4, (n, 5)), rng.lognormal(3, 1, (n, 5))
    score = (counts > 4) @ [1, 2, 1, 1, 2] - (amounts > 25) @ [2, 1, 2, 1, 1]
    X = np.hstack([counts, amounts, rng.integers(0, 2, (n, 5))])
    return X, np.digitize(score + rng.normal(0, 0.5, n), [-1.5, 1.5])


def diabetes(rng: np.random.Generator) -> Table:
    """Whether the disease progresses faster than in the median patient."""
    X, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    return X, (y > np.median(y)).astype(int)


def own(load: Callable[..., Table]) -> Callable[[np.random.Generator], Table]:
    """Return a table of scikit-learn's."""
    return lambda rng: load(return_X_y=True)


LOOKED_AT = {
    "digits": (own(datasets.load_digits), (10, 50, 200)),
    "breast cancer": (own(datasets.load_breast_cancer), (10, 50)),
    "wine": (own(datasets.load_wine), (5, 20)),
    "iris": (own(datasets.load_iris), (5, 20)),
    "diabetes": (diabetes, (10, 50)),
    "forest (made)": (forest, (20, 100, 500)),
    "clusters (made)": (clusters, (20, 100, 500)),
    "curve (made)": (curve, (20, 100, 500)),
    "sphere (made)": (sphere, (20, 200)),
    "rules (made)": (rules, (20, 100, 500)),
}
FRESH = {
    "breast cancer with holes": (holes, (10, 50)),
    "shells (made)": (shells, (20, 100, 500)),
    "steps (made)": (steps, (20, 100, 500)),
}


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def outcome(member: Any, k: int, X: Any, y: Any) -> tuple[float, float]:
    """Return clean accuracy and median radius of one ensemble."""
    cut = max(len(y) * 7 // 10, len(y) - 1000)
    model = DPAClassifier(member, k, classes=np.unique(y)).fit(X[:cut], y[:cut])
    certificates = model.certify(X[cut:])
    return clean_accuracy(certificates, y[cut:]), median_radius(certificates, y[cut:]) or 0


def row(make: Callable[[np.random.Generator], Table], k: int) -> dict[str, Any]:
    """Return the means over all draws, member by member."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MEMBERS}
    for draw in range(10):
        rng = np.random.default_rng(draw)
        X, y = make(rng)
        order = rng.permutation(len(y))
        if draw >= 3 and len(y) > 2_000:
            break
        for name, member in MEMBERS.items():
            if name == "ridge" and np.isnan(X).any():
                continue
            found[name].append(outcome(member, k, X[order], y[order]))
    return {
        name: {
            "clean_accuracy": round(float(np.mean([clean for clean, _ in draws])), 4),
            "median_radius": round(float(np.mean([median for _, median in draws])), 1),
            "draws": len(draws),
        }
        for name, draws in found.items()
        if draws
    }


def main() -> None:
    """Run all members on all tables and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore", MemberWarning)
    results: dict[str, Any] = {}
    for group, tables in (("looked at", LOOKED_AT), ("fresh", FRESH)):
        for name, (make, ks) in tables.items():
            for k in ks:
                found = row(make, k)
                results[f"{name}, k = {k}"] = {"table": group, **found}
                numbers = [
                    f"{title} {100 * one['clean_accuracy']:.1f} % / {one['median_radius']:.1f}"
                    for title, one in found.items()
                ]
                print(f"{name}, k = {k}: " + ", ".join(numbers), flush=True)
    options.out.write_text(json.dumps({"command": COMMAND, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
