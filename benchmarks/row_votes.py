"""Near rows and clusters: torch on a device against NumPy, on 60,000 rows.

    python benchmarks/row_votes.py --data DIR --device cuda --out benchmarks/results/row_votes.json

MNIST's images as neighbour votes see them. Counted: the training rows within a cosine of 0.89 of
all test images, by class. Searched: the 31 nearest training rows of every training row, the graph
of spectral clusters. Clusters: ten of all training rows, by k-means and by a mixture of Gaussians.
Both sides must find the same, bit for bit. The device has computed a little before the clock
starts; rounds alternate, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from closed_form_common import load, machine
from sklearn.pipeline import make_pipeline

from poisonproof.features import Deskew, OrientationHistogram
from poisonproof.features.exact import exact_rows
from poisonproof.members.clusters import make_clusterer
from poisonproof.members.similarity import Neighborhood, nearest_rows


def compared(work: Callable[[str | None], Any], device: str, rounds: int) -> dict[str, Any]:
    """Return the seconds of both sides, which must find the same."""
    seconds: dict[str, list[float]] = {"numpy": [], "device": []}
    found: Any = None
    for _ in range(rounds):
        for name, where in (("device", device), ("numpy", None)):
            began = time.perf_counter()
            result = work(where)
            seconds[name].append(round(time.perf_counter() - began, 3))
            if found is not None and not np.array_equal(found, result):
                raise SystemExit(f"{name} finds something else.")
            found = result
    ratio = median(seconds["numpy"]) / median(seconds["device"])
    return {**seconds, "ratio": round(ratio, 2)}


def main() -> None:
    """Compare counting and searching."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the published files")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000, help="training rows")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import torch

    images = load("mnist", options.data)
    features = make_pipeline(Deskew(), OrientationHistogram(cell=5, block=2, root=True))
    known = exact_rows(features.transform(images.x_train[: options.rows]), "single")
    asked = exact_rows(features.transform(images.x_test), "single")
    y = images.y_train[: options.rows]

    def counted(device: str | None) -> Any:
        return Neighborhood(0.89, device=device).count_by_class(asked, known, y, 10)

    def searched(device: str | None) -> Any:
        return nearest_rows(known, known, 31, device)

    rows = known.floats()

    def clustered(clusterer: str) -> Callable[[str | None], Any]:
        return lambda device: make_clusterer(clusterer, 10, device).fit(rows).labels_

    nearest_rows(asked[:512], known, 31, options.device)
    Neighborhood(0.89, device=options.device).count_by_class(asked[:512], known, y, 10)
    cuda = options.device.startswith("cuda")
    found: dict[str, Any] = {
        "command": "python benchmarks/row_votes.py --data DIR --device " + options.device,
        "machine": machine(-1)
        | {"torch": torch.__version__}
        | ({"gpu": torch.cuda.get_device_name()} if cuda else {}),
        "rows": len(known),
        "columns": known.values.shape[1],
        "test_rows": len(asked),
    }
    for name, work in (
        ("count", counted),
        ("search", searched),
        ("spectral", clustered("spectral")),
    ):
        found[name] = compared(work, options.device, options.rounds)
        print(f"{name}: NumPy / {options.device} = {found[name]['ratio']}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
