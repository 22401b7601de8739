"""Two workers of Dask and of Ray against two of joblib and against one process, in one run.

    python benchmarks/clusters.py --out FILE

Every engine trains the same members straight into a model directory: read, sent, trained, encoded,
written. Workers are started and have trained a small model before the clock starts; how long that
takes is told apart. Rounds go through all engines in turn, and the median counts. Efficiency is the
time of one process over twice the time of two workers. Digests must agree. The CPU time that
the driver spends on handing out partitions and storing members bounds how many workers it can feed;
for Dask it includes the scheduler.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from closed_form_common import machine
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.distributed import DaskCluster, RayCluster

WORKERS = 2
CLASSES = list(range(10))


def make_rows(n_rows: int, n_columns: int) -> tuple[Any, Any]:
    """Return normal numbers whose first columns tell the class, not quite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    y = np.argmax(X[:, :10] + rng.normal(scale=0.7, size=(n_rows, 10)), axis=1)
    return X, y


class Kept:
    """A cluster whose workers stay between two trainings, as those of joblib do."""

    opened = False
    spent = 0.0

    def train(self, classifier: Any, rows: Any, run: Any) -> None:
        """Count the CPU time of this process."""
        start = time.process_time()
        super().train(classifier, rows, run)  # type: ignore[misc]
        self.spent = time.process_time() - start

    def __enter__(self) -> Any:
        """Start workers once."""
        if not self.opened:
            super().__enter__()  # type: ignore[misc]
            self.opened = True
        return self

    def __exit__(self, *error: object) -> None:
        """Keep them."""

    def close(self) -> None:
        """End them."""
        if self.opened:
            super().__exit__(None, None, None)  # type: ignore[misc]


class KeptDask(Kept, DaskCluster):
    """Dask that stays."""


class KeptRay(Kept, RayCluster):
    """Ray that stays."""


def timed(train: Callable[[Path], Any]) -> tuple[float, list[str]]:
    """Train into a fresh directory; return seconds and the members' digests."""
    folder = Path(tempfile.mkdtemp(prefix="clusters-"))
    try:
        start = time.perf_counter()
        model = train(folder / "model")
        return time.perf_counter() - start, model.ensemble_.digests()
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Run all engines in turn, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("-k", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    X, y = make_rows(arguments.rows, arguments.columns)
    seconds: dict[str, list[float]] = {}
    driver: dict[str, list[float]] = {}
    digests: dict[str, list[str]] = {}
    starts: dict[str, float] = {}
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clusters = {"dask": KeptDask(n_workers=WORKERS), "ray": KeptRay(n_workers=WORKERS)}
        for kept in clusters.values():
            stack.callback(kept.close)
        names = ("serial", "joblib", *clusters)

        def train(name: str, k: int, path: Path, n_rows: int | None = None) -> Any:
            n_jobs, cluster = WORKERS if name == "joblib" else None, clusters.get(name)
            model = DPAClassifier(DecisionTreeClassifier(), k, classes=CLASSES, n_jobs=n_jobs)
            return model.fit_into(path, X[:n_rows], y[:n_rows], cluster=cluster, self_check=False)

        for name in names:
            starts[name], _ = timed(lambda path, name=name: train(name, 20, path, 2000))
        for _ in range(arguments.rounds):
            for name in names:
                took, digests[name] = timed(lambda path, name=name: train(name, arguments.k, path))
                seconds.setdefault(name, []).append(took)
                if name in clusters:
                    driver.setdefault(name, []).append(clusters[name].spent)
    assert all(found == digests["serial"] for found in digests.values()), "digests differ"
    middle = {name: median(times) for name, times in seconds.items()}
    result = {
        "machine": machine(WORKERS),
        "rows": arguments.rows,
        "columns": arguments.columns,
        "k": arguments.k,
        "workers": WORKERS,
        "seconds": seconds,
        "driver_milliseconds_per_member": {
            name: 1000 * median(spent) / arguments.k for name, spent in driver.items()
        },
        "first_small_training_seconds": starts,
        "members_per_second": {name: arguments.k / took for name, took in middle.items()},
        "efficiency": {
            name: middle["serial"] / (WORKERS * took)
            for name, took in middle.items()
            if name != "serial"
        },
        "speed_against_joblib": {name: middle["joblib"] / middle[name] for name in ("dask", "ray")},
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
