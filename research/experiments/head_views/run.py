"""Number of views of an image that a linear member needs: some members of an SS-DPA row, on a CPU.

Run: python research/experiments/head_views/run.py cifar10-ssdpa-1000 --features DIR --data PACK --out FILE
Members of the row are trained on 1, 4, 16, 32 and 128 views of every image, and on the images as
they are.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof.networks import FrozenNetwork, TorchLearner, load_features
from poisonproof.partition import PartitionedData
from poisonproof_research.networks.heads import HeadLearner
from poisonproof_research.reproduction import (
    Recipe,
    RowData,
    data_from_pack,
    load_recipes,
    make_partitions,
)

VIEWS = (0, 1, 4, 16, 32, 128)
"""Views of every image; 0 stands for the image as it is."""


def accuracies(
    views: int,
    recipe: Recipe,
    data: RowData,
    parts: PartitionedData,
    features: FrozenNetwork,
    which: list[int],
    n_test: int,
) -> list[float]:
    """Return the accuracy of some members, in percent, on the first test images."""
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in recipe.learner.items()
        if name not in ("kind", "network", "views")
    }
    seen, test = parts, data.x_test[:n_test]
    learner: Any = HeadLearner(features, views=views or 1, **options)
    if not views:
        rows = np.concatenate([parts.rows(index) for index in which])
        vectors = np.zeros((len(data.x_train), 8 * features.spec.width), np.float32)
        vectors[rows] = features.transform(data.x_train[rows])
        seen, test = replace(parts, X=vectors), features.transform(test)
        learner = TorchLearner("linear", normalize="none", **options)
    members = learner.fit_members(seen, which, data.n_classes, recipe.seed)
    right = members.votes(test) == data.y_test[:n_test, None]
    return [round(100 * float(value), 2) for value in right.mean(axis=0)]


def main() -> None:
    """Train the members on every number of views, and write their accuracies as they come."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("row")
    parser.add_argument("--features", type=Path, required=True, help="--out of features train")
    parser.add_argument("--data", type=Path, required=True, help="a packed dataset")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--n-test", type=int, default=2000)
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    given = parser.parse_args()
    recipe, data = load_recipes()[given.row], data_from_pack(given.data)
    features = load_features(given.features, device="cpu")
    _, parts = make_partitions(recipe, data)
    which = list(range(given.members))
    found: dict[str, Any] = {
        "row": given.row,
        "features_sha256": features.digest(),
        "epochs": len(features.history),
        "n_test": given.n_test,
        "members": {},
        "mean_percent": {},
    }
    for views in VIEWS:
        values = accuracies(views, recipe, data, parts, features, which, given.n_test)
        found["members"][str(views)] = values
        found["mean_percent"][str(views)] = round(float(np.mean(values)), 2)
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(views, found["mean_percent"][str(views)], flush=True)


if __name__ == "__main__":
    main()
