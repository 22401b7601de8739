"""Members on partitions of rows times blocks of features: what they certify, and what they cost.

    python benchmarks/grids.py mnist --out benchmarks/results/grids.json
    python benchmarks/grids.py cost --out benchmarks/results/grids.json
    python benchmarks/grids.py pixels cifar --cifar FOLDER --out benchmarks/results/grids.json  # GPU

All test images of MNIST (``mnist.npz`` in the folder POISONPROOF_DATA) or CIFAR-10 (the published
binary batches in a folder). For every number f of changed blocks a line has the share of test rows
that are right and stay so while r training rows are inserted or deleted, r = 0, 1, ...

The settings were chosen on training images alone (all but the last 10,000 or 5,000 to train, those
to compare) and written here before the first run on test images:

- ``mnist``: k x B = 64 x 16 lattices, kernel ridge with gamma 0.4 and alpha 0.03, run-offs inside.
  Compared were k = 64 and 80, gamma from 0.12 to 2, alpha from 0.02 to 0.1, votes and run-offs.
- ``pixels``: features alone (k = 1), 53 blocks of hashed pixels, perceptrons of two layers of 512
  units for 80 epochs, run-offs. Compared were 49 to 64 blocks, lattices, 256 and 512 units, 20 to
  80 epochs.
- ``cifar``: features alone, lattices of 64 and of 121 blocks, run-offs; the floor of clean
  accuracy was 50 %. Rows and features, 5 x 16 lattices. Compared were 16 to 121 blocks, and k = 5
  and 10.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof import GridClassifier, TorchLearner
from poisonproof.estimators import certify_runoff
from poisonproof.members.closed_form import KernelRidgeClassifier

KERNEL = KernelRidgeClassifier("rbf", gamma=0.4, alpha=0.03, precision="single")


def perceptron(data: str, hidden: int, epochs: int, weight_decay: float, mixup: float) -> Any:
    """Return stacked perceptrons on a GPU."""
    return TorchLearner(
        "mlp",
        hidden=(hidden, hidden),
        epochs=epochs,
        batch_size=256,
        tile_rows=256,
        stack_width=64,
        learning_rate=0.1 if data == "mnist" else 0.05,
        weight_decay=weight_decay,
        schedule="cosine",
        mixup=mixup,
        input_scale=1 / 255,
        normalize="none" if data == "mnist" else "partition",
        vote_rows=1000,
        device="cuda",
    )


def mnist() -> tuple[Any, ...]:
    """Return training and test images and their digits."""
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as arrays:
        return tuple(arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))


def cifar(folder: Path) -> tuple[Any, ...]:
    """Return training and test images (n, 32, 32, 3) and their classes, from binary batches."""

    def batch(name: str) -> tuple[Any, Any]:
        table = np.fromfile(folder / f"{name}.bin", dtype=np.uint8).reshape(-1, 3073)
        images = table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), table[:, 0].astype(np.int64)

    parts = [batch(f"data_batch_{number}") for number in range(1, 6)]
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return X, y, *batch("test_batch")


def surface(certificates: Any, y: Any) -> dict[str, Any]:
    """Return what is certified: for every f, the share of test rows that survive r = 0, 1, ..."""
    correct = certificates.labels == y
    rows = np.where(correct[:, np.newaxis], certificates.rows, -1)
    most = (rows >= 0).sum(axis=1) - 1  # largest f; -1 where the prediction is wrong
    half = (len(y) + 1) // 2 - 1
    return {
        "clean": round(float(correct.mean()), 4),
        "median_rows": [int(r) for r in -np.sort(-rows, axis=0)[half]],
        "median_features": int(-np.sort(-most)[half]),
        "median_features_of_correct": int(np.median(most[correct])),
        "certified": [
            [round(float((rows[:, f] >= r).mean()), 4) for r in range(int(rows[:, f].max()) + 1)]
            for f in range(rows.shape[1])
        ],
    }


def trained(data: tuple[Any, ...], member: Any, k: int, blocks: str, **options: Any) -> Any:
    """Train on all training images."""
    X, y, *_ = data
    return GridClassifier(member, k, blocks, classes=range(10), **options).fit(X, y)


def measured(data: tuple[Any, ...], member: Any, k: int, blocks: str) -> dict[str, Any]:
    """Train, and certify all test images by votes and by run-offs."""
    start = time.perf_counter()
    classifier = trained(data, member, k, blocks)
    seconds = time.perf_counter() - start
    _, _, X, y = data
    found: dict[str, Any] = {"k": k, "blocks": blocks, "training_seconds": round(seconds, 1)}
    for name, certify in (("vote", classifier.certify), ("runoff", None)):
        start = time.perf_counter()
        made = certify(X) if certify else certify_runoff(classifier, X)
        found[name] = {"seconds": round(time.perf_counter() - start, 1), **surface(made, y)}
        told = {key: value for key, value in found[name].items() if key != "certified"}
        print(k, blocks, name, told, flush=True)
    return found


def cost() -> dict[str, Any]:
    """Return time and memory of grids of several sizes, on images scaled to [0, 1]."""
    data = mnist()
    X, Xt = (np.asarray(part / 255, dtype=np.float32) for part in (data[0], data[2]))
    runs = []
    for k, B in ((50, 16), (50, 4), (200, 16), (50, 49)):
        start = time.perf_counter(), time.process_time()
        classifier = trained((X, data[1]), KERNEL, k, f"lattice:{B}", n_jobs=2)
        middle = time.perf_counter()
        classifier.certify(Xt)
        end = time.perf_counter(), time.process_time()
        runs.append(
            {
                "k": k,
                "B": B,
                "training_seconds": round(middle - start[0], 1),
                "certifying_seconds": round(end[0] - middle, 1),
                "cpu_seconds": round(end[1] - start[1], 1),
                "peak_mb_so_far": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
        print(runs[-1], flush=True)
    first = runs[0]
    for run in runs[1:]:
        cells = run["k"] * run["B"] / (first["k"] * first["B"])
        ratio = run["cpu_seconds"] / first["cpu_seconds"]
        print(f"{cells:.2f} times the cells of 50 x 16: {ratio:.2f} times its CPU time")
    return {"cores": os.cpu_count(), "runs": runs}


def main() -> None:
    """Run the named parts and keep what the file has of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=["mnist", "cost", "pixels", "cifar"])
    parser.add_argument("--cifar", type=Path, help="folder of CIFAR-10's binary batches")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for part in options.parts:
        if part == "cost":
            found["cost"] = cost()
        elif part == "mnist":
            X, y, Xt, yt = mnist()
            scaled = tuple(np.asarray(images / 255, dtype=np.float32) for images in (X, Xt))
            found["MNIST, rows and features"] = measured(
                (scaled[0], y, scaled[1], yt), KERNEL, 64, "lattice:16"
            )
        elif part == "pixels":
            member = perceptron("mnist", 512, 80, 5e-5, 0.0)
            found["MNIST, features alone"] = measured(mnist(), member, 1, "pixels:53")
        else:
            data = cifar(options.cifar)
            for k, blocks, member in (
                (1, "lattice:64", perceptron("cifar", 512, 20, 2e-4, 0.0)),
                (1, "lattice:121", perceptron("cifar", 256, 20, 1e-4, 0.0)),
                (5, "lattice:16", perceptron("cifar", 512, 30, 5e-4, 0.2)),
            ):
                found[f"CIFAR-10, {k} x {blocks}"] = measured(data, member, k, blocks)
        if options.out:
            options.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
