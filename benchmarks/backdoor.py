"""Backdoors and evasion on MNIST: an undefended network, and a certified grid.

    POISONPROOF_DATA=DIR python benchmarks/backdoor.py --out benchmarks/results/backdoor.json

The backdoor (BadNets): r training images are inserted a second time with a stamp of three bright
pixels and the attacker's label; then the stamp is put on every test image. The evasion: without
poisoned rows, one pixel after the other is chosen that loses most votes for an image's label. The
grid is attacked at the number of pixels that is certified for each image, and beyond. The
settings of the members were chosen on the last 1,000 training images.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from poisonproof import GridClassifier
from poisonproof.certificates import certify_grid
from poisonproof.certificates.result import GridCertificates
from poisonproof.members.closed_form import KernelRidgeClassifier
from poisonproof.progress import Silent
from poisonproof.store.manifest import environment_here

K, B, TARGET = 50, 16, 7
STAMP = ([26, 26, 25], [25, 26, 26])  # three pixels of the corner, each in another block
N_TEST, N_EVADED, MOST_PIXELS = 2000, 200, 16

Images = NDArray[Any]


def network(X: Images, y: NDArray[Any]) -> Any:
    """Return one network that was trained on all rows."""
    model = MLPClassifier((128,), batch_size=256, max_iter=8, random_state=0)
    return model.fit(X.reshape(len(X), -1) / 255, y)


def asked(model: Any, X: Images) -> NDArray[Any]:
    """Return the network's labels."""
    return np.asarray(model.predict(X.reshape(len(X), -1) / 255))


def grid(X: Images, y: NDArray[Any]) -> GridClassifier:
    """Return a grid of kernel ridge members with rows outside."""
    member = KernelRidgeClassifier("rbf", gamma=0.5 / 255**2, precision="single")
    return GridClassifier(member, K, f"lattice:{B}", classes=range(10), n_jobs=2).fit(X, y)


def stamped(X: Images) -> Images:
    """Return images with the stamp."""
    marked = X.copy()
    marked[:, STAMP[0], STAMP[1]] = 255
    return marked


def poisoned(X: Images, y: NDArray[Any], r: int) -> tuple[Images, NDArray[Any]]:
    """Insert r stamped copies of images of other classes, with the attacker's label."""
    rows = np.random.default_rng(r).choice(np.flatnonzero(y != TARGET), r, replace=False)
    return np.concatenate([X, stamped(X[rows])]), np.append(y, np.full(r, TARGET))


def backdoors(images: dict[str, Any], sizes: list[int]) -> tuple[list[dict[str, Any]], Any, Any]:
    """Poison, train, and count test images of other classes that the stamp turns."""
    X, y, X_test, y_test = (images[name] for name in ("X", "y", "X_test", "y_test"))
    others, marked, f = y_test != TARGET, stamped(X_test), len(STAMP[0])
    clean, found, plain = None, [], None
    for r in sizes:
        rows = poisoned(X, y, r)
        alone, ensemble = network(*rows), grid(*rows)
        if clean is None:
            plain, clean = alone, ensemble
            certificates = clean.certify(X_test)
        labels = ensemble.predict(marked)
        held = certificates.rows[:, f] >= r
        right = certificates.labels == y_test
        found.append(
            {
                "rows": r,
                "network": _outcome(asked(alone, X_test), asked(alone, marked), y_test),
                "grid": _outcome(ensemble.predict(X_test), labels, y_test),
                "certified_against_rows_and_stamp": _share(held & right),
                "certified_predictions_changed": int(
                    (held & (labels != certificates.labels)).sum()
                ),
                "of_other_classes": int(others.sum()),
            }
        )
        sys.stderr.write(f"{found[-1]}\n")
    return found, plain, clean


def _share(some: NDArray[np.bool_]) -> float:
    return round(float(some.mean()), 4)


def _outcome(clean: NDArray[Any], marked: NDArray[Any], y: NDArray[Any]) -> dict[str, float]:
    others = y != TARGET
    return {"accuracy": _share(clean == y), "attack_success": _share(marked[others] == TARGET)}


# Evasion. One pixel in each of f blocks changes one vote within each row partition for each block,
# so the votes of all single changes, asked once, give those of all greedy choices.


def evade_grid(model: GridClassifier, X: Images, y: NDArray[Any]) -> dict[str, Any]:
    """Change pixels one by one, each where it helps most, until the label changes."""
    votes, certificates = model.grid_votes(X), model.certify(X)
    certified = (certificates.rows >= 0).sum(axis=1) - 1
    changed = _single_changes(model, X)
    needed = np.full(len(X), MOST_PIXELS + 1)
    before, wrong = np.zeros(len(X), dtype=bool), 0
    for i in range(len(X)):
        label, current, left = certificates.labels[i], votes[i].copy(), list(range(B))
        goal = certificates.runner_up[i]
        for f in range(1, B + 1):
            best = [_best(current, b, changed[b][i], label, goal) for b in left]
            *_, number, block = min((*some, b) for some, b in zip(best, left, strict=True))
            left.remove(block)
            current[:, block] = changed[block][i][number]
            if certify_grid(current[None], 10).labels[0] != label:
                needed[i] = f
                break
        before[i] = needed[i] <= certified[i]
        wrong += label != y[i]
    return {
        "images": len(X),
        "accuracy": _share(certificates.labels == y),
        "median_certified_pixels": int(np.median(certified)),
        "turned_with_certified_pixels": int(before.sum()),
        "turned_with_so_many_more": {
            more: _share(needed <= certified + more) for more in (1, 2, 3, 4, 6)
        },
        "median_pixels_needed": _median(needed),
    }


def _median(needed: NDArray[Any]) -> int | str:
    middle = int(np.sort(needed)[(len(needed) - 1) // 2])
    return middle if middle <= MOST_PIXELS else f"more than {MOST_PIXELS}"


def _best(
    cells: NDArray[Any], block: int, options: NDArray[Any], label: int, goal: int
) -> tuple[int, int, int]:
    """Return how far label stays ahead of goal, by row partitions and by votes, and the change."""
    ballots = np.eye(10, dtype=int)
    counts = ballots[np.delete(cells, block, axis=1)].sum(axis=1) + ballots[options]
    elected = counts.argmax(axis=2)
    outer = (elected == label).sum(axis=1) - (elected == goal).sum(axis=1)
    inner = (counts[:, :, label] - counts[:, :, goal]).sum(axis=1)
    number = int(np.lexsort([inner, outer])[0])
    return int(outer[number]), int(inner[number]), number


def _single_changes(model: GridClassifier, X: Images) -> list[NDArray[Any]]:
    """Return the votes of each block's members after every change of one pixel to black or white.

    One array of shape (n, changes, k) for each block; of equal votes one is kept.
    """
    assert model.partitioner_ is not None
    blocks: Any = model.partitioner_.blocks  # type: ignore[attr-defined]
    found = []
    for block, part in enumerate(blocks.split(X)):
        width = part.shape[1]
        tried = np.repeat(part[:, None].astype(float), 2 * width, axis=1)
        for pixel in range(width):
            tried[:, 2 * pixel, pixel], tried[:, 2 * pixel + 1, pixel] = 0, 255
        members = model.ensemble_.part(range(block * K, (block + 1) * K))
        flat = members.votes(tried.reshape(-1, width), n_jobs=2, progress=Silent())
        found.append(flat.reshape(len(X), 2 * width, K))
    return found


def evade_network(model: Any, X: Images) -> dict[str, Any]:
    """Change pixels one by one to black or white, each where the label loses most."""
    needed = np.full(len(X), MOST_PIXELS + 1)
    for i, image in enumerate(X.reshape(len(X), -1) / 255):
        label, row = int(model.predict(image[None])[0]), image.copy()
        for f in range(1, MOST_PIXELS + 1):
            tried = np.repeat(row[None], 2 * len(row), axis=0)
            pixels = np.arange(len(row))
            tried[pixels, pixels], tried[len(row) + pixels, pixels] = 0, 1
            shares = model.predict_proba(tried)
            lead = shares[:, label] - np.delete(shares, label, axis=1).max(axis=1)
            row = tried[int(lead.argmin())]
            if lead.min() < 0:
                needed[i] = f
                break
    return {"images": len(X), "median_pixels_needed": _median(needed)}


def staircase(certificates: GridCertificates, y: NDArray[Any]) -> dict[str, Any]:
    """Return certified accuracy at some rows r, for every number of pixels f."""
    right = certificates.labels == y
    return {
        "clean_accuracy": _share(right),
        "median_rows": np.median(np.where(right[:, None], certificates.rows, -1), axis=0).tolist(),
        "certified_accuracy": {
            r: [_share(right & (rows >= r)) for rows in certificates.rows.T]
            for r in (0, 6, 12, 20, 24)
        },
    }


def main() -> None:
    """Run both attacks and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[0, 20, 100, 600])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    started = time.perf_counter()
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        images = {
            "X": file["x_train"],
            "y": file["y_train"].astype(int),
            "X_test": file["x_test"][:N_TEST],
            "y_test": file["y_test"][:N_TEST].astype(int),
        }
    found, alone, ensemble = backdoors(images, options.rows)
    some = slice(N_EVADED)
    report = {
        "command": "POISONPROOF_DATA=DIR python benchmarks/backdoor.py --out FILE",
        "data": "MNIST: 60,000 training images, the first 2,000 test images",
        "grid": f"k = {K}, B = {B} (lattice), kernel ridge, rows outside",
        "stamp": f"{len(STAMP[0])} white pixels in a corner; label {TARGET}",
        "staircase": staircase(ensemble.certify(images["X_test"]), images["y_test"]),
        "backdoor": found,
        "evasion": {
            "network": evade_network(alone, images["X_test"][some]),
            "grid": evade_grid(ensemble, images["X_test"][some], images["y_test"][some]),
        },
        "seconds": round(time.perf_counter() - started, 1),
        "packages": environment_here()["packages"],
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
