"""Cost of the library beyond the training of its members.

    python benchmarks/ensemble_overhead.py --out benchmarks/results/ensemble_overhead.json

`DPAClassifier.fit` is timed against a plain Python loop that fits a clone of the same estimator on
``X[rows]`` for every partition, with one thread for linear algebra in both. The rows of each
partition are given to the loop; hashing, sorting, canonical values, random streams and bookkeeping
are the library's own cost. The speed of a shared machine drifts by tens of per cent within
seconds, so each run of the one is paired with the run of the other next to it, the first of the
two in turn; the median of the pairs' ratios of wall-clock time counts, and the quartiles are
written down beside it. The exit status is 1 if the cost is above 10 %.

The folder in POISONPROOF_DATA holds mnist.npz (x_train 60,000 x 28 x 28, y_train). Without it, rows
of the same shape are drawn at random, and the result says so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from poisonproof import DPAClassifier
from poisonproof.store.manifest import environment_here

LIMIT = 0.10
MEMBERS = {"decision tree": DecisionTreeClassifier(random_state=0), "naive Bayes": GaussianNB()}


def main(arguments: list[str] | None = None) -> int:
    """Time both and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=1000, help="k (default: 1000)")
    parser.add_argument("--repeats", type=int, default=15, help="pairs of runs (default: 15)")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args(arguments)
    X, y, data = mnist()
    rows = {"data": data, "rows": len(y), "features": X.shape[1], "k": options.partitions}
    members = {}
    for name, estimator in MEMBERS.items():
        members[name] = compare(estimator, X, y, options.partitions, options.repeats)
        print(f"{name}: {members[name]['overhead']:+.1%}", file=sys.stderr)
    result = {
        **rows,
        "limit": LIMIT,
        "members": members,
        "packages": environment_here()["packages"],
    }
    text = json.dumps(result, indent=1)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    print(text)
    return int(any(member["overhead"] > LIMIT for member in members.values()))


def mnist() -> tuple[Any, Any, str]:
    """Return training images as rows of bytes, their labels, and where they come from."""
    folder = os.environ.get("POISONPROOF_DATA")
    if folder is not None:
        with np.load(Path(folder) / "mnist.npz") as arrays:
            return arrays["x_train"].reshape(60_000, 784), arrays["y_train"], "MNIST"
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 60_000)
    centres = rng.integers(0, 256, (10, 784))
    ink = rng.random((60_000, 784), dtype=np.float32) < 0.2
    return np.where(ink, centres[y], 0).astype(np.uint8), y, "random images"


def compare(estimator: Any, X: Any, y: Any, k: int, repeats: int) -> dict[str, Any]:
    """Time the plain loop and the library in turn."""
    model = DPAClassifier(estimator, k, classes=range(10))
    partitions = clone(model).fit(X, y).partitioner_.assign(X)
    order = np.argsort(partitions, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(partitions, minlength=k))[:-1])
    library, loop = np.empty(repeats), np.empty(repeats)
    for pair in range(repeats):
        for ours in (False, True) if pair % 2 else (True, False):
            if ours:
                library[pair] = timed(lambda: clone(model).fit(X, y))
            else:
                loop[pair] = timed(lambda: plain_loop(estimator, X, y, parts))
    cost = library / loop - 1
    return {
        "loop_seconds": loop.round(3).tolist(),
        "library_seconds": library.round(3).tolist(),
        "overhead": round(float(np.median(cost)), 4),
        "quartiles": np.quantile(cost, [0.25, 0.75]).round(4).tolist(),
        "overhead_of_the_sums": round(float(library.sum() / loop.sum()) - 1, 4),
        "overhead_of_the_minima": round(float(library.min() / loop.min()) - 1, 4),
    }


def plain_loop(estimator: Any, X: Any, y: Any, parts: list[Any]) -> list[Any]:
    """Fit the same members with nothing around them."""
    with threadpool_limits(limits=1):
        return [clone(estimator).fit(X[rows], y[rows]) for rows in parts]


def timed(work: Callable[[], Any]) -> float:
    """Return the wall-clock seconds of a piece of work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
