"""Growth of the default member's cost with k, beside that of kernel ridge.

    python benchmarks/default_member_scaling.py --out FILE

60,000 x 784 made-up pixels of ten classes, content partitions, 2,000 test rows, both learners in
turn at every k. The default member scales the test rows anew for every member, so its votes grow
with k; kernel ridge shares one product among all members. The ratio is what raw tables, missing
values and unscaled columns cost at that k.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from closed_form_common import machine, timed

from poisonproof.members.closed_form import KernelRidgeClassifier, ScaledKernelClassifier
from poisonproof.partition import ContentHash, partition_data
from poisonproof.progress import Silent

K = (300, 1200, 3000, 12000)


def made_up(n: int, seed: int) -> tuple[Any, Any]:
    """Return pixels around one picture per class, a third of them always dark."""
    pictures = np.random.default_rng(0).integers(0, 256, (10, 784))
    pictures[:, np.random.default_rng(1).permutation(784)[:260]] = 0
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    noise = rng.normal(0, 60, (n, 784)) * (pictures[y] > 0)
    return np.clip(pictures[y] + noise, 0, 255).astype(np.uint8), y


def cost(learner: Any, data: Any, test: Any, k: int, n_jobs: int) -> dict[str, float]:
    """Return the seconds of fit and votes."""
    times: dict[str, float] = {}
    with timed(times, "fit"):
        members = learner.fit_members(data, range(k), 10, 0, n_jobs=n_jobs, progress=Silent())
    with timed(times, "votes"):
        members.votes(test, n_jobs=n_jobs, progress=Silent())
    return {**times, "total": round(times["fit"] + times["votes"], 3)}


def main() -> None:
    """Measure both learners at every k and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--test-rows", type=int, default=2_000)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--k", type=int, nargs="+", default=list(K))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    (X, y), (test, _) = made_up(options.rows, 2), made_up(options.test_rows, 3)
    learners = {
        "default": ScaledKernelClassifier(),
        "kernel_ridge": KernelRidgeClassifier(gamma=2.0 / (784 * 128**2), precision="single"),
    }
    report: dict[str, Any] = {
        "command": "python benchmarks/default_member_scaling.py",
        "rows": options.rows,
        "test_rows": options.test_rows,
        "machine": machine(options.n_jobs),
    }
    by_k: dict[int, Any] = {}
    for k in options.k:
        data = partition_data(X, y, ContentHash(n_partitions=k))
        by_k[k] = {name: cost(one, data, test, k, options.n_jobs) for name, one in learners.items()}
        by_k[k]["ratio"] = round(by_k[k]["default"]["total"] / by_k[k]["kernel_ridge"]["total"], 2)
        print(k, json.dumps(by_k[k]), flush=True)
    report["by_k"] = by_k
    first, last = (by_k[k] for k in (options.k[0], options.k[-1]))
    report["growth"] = {
        name: round(last[name]["total"] / first[name]["total"], 2) for name in learners
    }
    print(json.dumps(report["growth"]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
