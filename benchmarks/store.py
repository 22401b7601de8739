"""Cost of stored models: loading many members, and updating one row against training anew.

    python benchmarks/store.py --data DIR --out FILE

DIR holds MNIST as published. Loading: k = 3,000 closed-form members, from the call of `load` until
every member is in memory and its digest is checked. Updating: one row taken out of 60,000 at
k = 1,200, in the store (`update_model`: reads, retrains, writes, syncs), against `fit_into` from
nothing, in the same run; closed-form members and decision trees.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from closed_form_common import load as load_dataset
from closed_form_common import machine
from sklearn.tree import DecisionTreeClassifier

import poisonproof
from poisonproof.estimators.storing import update_model
from poisonproof_research.methods.digits import digit_classifier

REPEATS = 5


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_load(path: Path) -> dict[str, Any]:
    """Load a model several times, as far as its members' digests."""

    def whole() -> None:
        len(poisonproof.load(path).ensemble_.loaded)

    times = sorted(seconds(whole) for _ in range(REPEATS))
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {"seconds": times, "median": float(np.median(times)), "megabytes": size / 1e6}


def measure_update(make: Callable[[], Any], X: Any, y: Any, path: Path) -> dict[str, Any]:
    """Train into a store, then take out single rows."""
    full = seconds(lambda: make().fit_into(path, X, y, keep_data=True, self_check=False))
    rows = np.random.default_rng(0).choice(len(y), REPEATS, replace=False)
    times = sorted(
        seconds(lambda row=row: update_model(path, remove=(X[row : row + 1], y[row : row + 1])))
        for row in rows
    )
    median = float(np.median(times))
    return {"full_training": full, "one_row": times, "median": median, "share": median / full}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    mnist = load_dataset("mnist", arguments.data)
    X, y = mnist.x_train.reshape(len(mnist.y_train), -1), mnist.y_train
    images = X.reshape(-1, 28, 28)
    result: dict[str, Any] = {"machine": machine(1)}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        digit_classifier(3000).fit(images, y).save(store / "closed-3000")
        result["load_closed_form_3000"] = measure_load(store / "closed-3000")
        trees = {
            "closed_form_1200": (lambda: digit_classifier(1200), images),
            "trees_1200": (_trees, X),
        }
        for name, (make, samples) in trees.items():
            result[f"update_{name}"] = measure_update(make, samples, y, store / name)
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def _trees() -> Any:
    return poisonproof.DPAClassifier(
        DecisionTreeClassifier(), 1200, partitioner="pixel_sum", classes=range(10)
    )


if __name__ == "__main__":
    main()
