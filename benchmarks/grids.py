"""Members on partitions of rows times blocks of features: what they certify, and what they cost.

    python benchmarks/grids.py mnist --out benchmarks/results/grids.json
    python benchmarks/grids.py cost --out benchmarks/results/grids.json
    python benchmarks/grids.py tables texts --outside FOLDER --out benchmarks/results/grids.json
    python benchmarks/grids.py pixels cifar --cifar FOLDER --out benchmarks/results/grids.json
    python benchmarks/grids.py picture --out benchmarks/results/grids.json

``pixels`` and ``cifar`` need a GPU; ``picture`` draws ``docs/assets/grid-mnist.svg``.

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
- ``tables``: ``penguins.csv`` (species) and ``diamonds.csv`` (is the price above 2,401?) of
  seaborn-data, the default member on columns dealt out by a hash; a hash of the row holds 30 % out.
- ``texts``: SST-2's train and test sentences (``sst-train.tsv``, ``sst-test.tsv``), ridge on hashed
  words, 8 blocks of words, settled on its dev sentences.
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
import pandas as pd

from poisonproof import GridClassifier, TorchLearner
from poisonproof.data import Schema, freeze_schema
from poisonproof.data.schema import held_out_rows
from poisonproof.estimators import certify_runoff
from poisonproof.features import HashedNGrams
from poisonproof.members.closed_form import KernelRidgeClassifier, RidgeClassifier

PARTS = ("mnist", "cost", "tables", "texts", "pixels", "cifar", "picture")
PICTURE = Path(__file__).parents[1] / "docs/assets/grid-mnist.svg"
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


def tables(folder: Path) -> dict[str, Any]:
    """Return what is certified for two tables, rows outside and features outside."""
    penguins, diamonds = (pd.read_csv(folder / f"{name}.csv") for name in ("penguins", "diamonds"))
    dear = (diamonds.pop("price") > 2401).map({True: "dear", False: "cheap"})
    found = {}
    for name, table, label, k, B in (
        ("penguins", penguins, "species", 9, 5),
        ("diamonds", diamonds.assign(price=dear), "price", 50, 8),
    ):
        test = held_out_rows(table.astype(str).to_numpy(), 0.3)
        schema = freeze_schema(Schema.propose(table, label))
        for outer in ("rows", "features"):
            classifier = GridClassifier(None, k, B, outer, schema=schema).fit(table[~test])
            certificates = classifier.certify(table[test].drop(columns=label))
            seen = surface(certificates, table[test][label].to_numpy())
            found[f"{name}, {outer} outside"] = {
                "k": k,
                "B": B,
                "test_rows": int(test.sum()),
                **seen,
            }
            told = {key: value for key, value in seen.items() if key != "certified"}
            print(name, outer, told, [shares[0] for shares in seen["certified"]], flush=True)
    return found


def texts(folder: Path) -> dict[str, Any]:
    """Return what is certified for SST-2, words alone and rows and words."""
    train, test = (pd.read_csv(folder / f"sst-{part}.tsv", sep="\t") for part in ("train", "test"))
    found = {}
    for k in (1, 10):
        classifier = GridClassifier(
            RidgeClassifier(),
            k,
            "words:8",
            features=HashedNGrams(n_features=2048 if k == 1 else 1024),
            classes=[0, 1],
            n_jobs=2,
        ).fit(train.sentence.tolist(), train.label)
        seen = surface(classifier.certify(test.sentence.tolist()), test.label.to_numpy())
        found[f"SST-2, {k} x 8"] = {"k": k, "B": 8, "test_rows": len(test), **seen}
        told = {key: value for key, value in seen.items() if key != "certified"}
        print(k, "x 8", told, [shares[0] for shares in seen["certified"]], flush=True)
    return found


def picture(run: dict[str, Any], path: Path) -> None:
    """Draw the surface of one run: certified accuracy by changed pixels and poisoned rows."""
    certified = run["runoff"]["certified"]
    columns = [*range(0, run["k"] // 2, 3), (run["k"] - 1) // 2]
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 380" role="img" '
        'aria-labelledby="t"><title id="t">Certified accuracy on MNIST</title>',
        "<style>text{font:13px system-ui,sans-serif;fill:#1b3a38}.n{text-anchor:middle}"
        ".e{text-anchor:end}.h{font-weight:600}.l{fill:#fff}svg{background:#fff}</style>",
        '<text class="h" x="20" y="24">Test images of MNIST that are right and stay right, in '
        "percent</text>",
        '<text class="n" x="470" y="52">training images inserted or deleted</text>',
        '<text x="20" y="74">pixels changed</text>',
    ]
    left, top, width, height = 120, 84, 60, 30
    for place, rows in enumerate(columns):
        parts.append(f'<text class="n" x="{left + place * width + 30}" y="74">{rows}</text>')
    for f, shares in enumerate(certified):
        y = top + f * height
        parts.append(f'<text class="e" x="{left - 12}" y="{y + 20}">{f}</text>')
        for place, rows in enumerate(columns):
            share = shares[rows] if rows < len(shares) else 0.0
            x, frame = left + place * width, ' stroke="#0b5c54" stroke-width="2"'
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{width - 3}" height="{height - 3}" rx="3" '
                f'fill="#0b7a6f" fill-opacity="{share:.3f}"{frame if share >= 0.5 else ""}/>'
                f'<text class="n{" l" if share > 0.6 else ""}" x="{x + 29}" y="{y + 20}">'
                f"{100 * share:.0f}</text>"
            )
    bottom = top + len(certified) * height + 22
    parts.append(f'<text x="{left}" y="{bottom}">Framed: at least half of all test images.</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def main() -> None:
    """Run the named parts and keep what the file has of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--cifar", type=Path, help="folder of CIFAR-10's binary batches")
    parser.add_argument("--outside", type=Path, help="folder of the tables and texts")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for part in options.parts:
        if part == "cost":
            found["cost"] = cost()
        elif part == "tables":
            found |= tables(options.outside)
        elif part == "texts":
            found |= texts(options.outside)
        elif part == "picture":
            picture(found["MNIST, rows and features"], PICTURE)
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
