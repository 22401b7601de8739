"""GTSRB: networks and default members on the same partitions, one vote.

    RECIPES=research/experiments/strong_members/recipes
    python -m poisonproof_research reproduce strong --recipes $RECIPES --rows gtsrb-tuned-150 --scores --data PACK --out DIR
    python research/experiments/signs/committee.py --data PACK --features FILE --scores DIR

The one committee that README.md names, by plurality and by run-off, and the default members alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from colours import colours
from numpy.typing import NDArray
from run import mapped

from poisonproof.members.closed_form import ScaledKernelClassifier
from poisonproof.members.committee import standardized
from poisonproof_research.reproduction import (
    RowData,
    data_from_pack,
    load_recipes,
    make_partitions,
)
from poisonproof_research.reproduction.running import read_scores

sys.path.insert(0, str(Path(__file__).parent.parent))
from joint_votes import write_votes

ROW = "gtsrb-tuned-150"

_LARGEST = 1e150
"""Closed-form members score classes of which they have no rows below minus this."""


def ranked(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Score classes without rows as far below the last known class as that is below the first."""
    unknown = scores < -_LARGEST
    scores = scores.clip(max=_LARGEST)
    last = np.where(unknown, np.inf, scores).min(axis=2, keepdims=True)
    spread = np.where(unknown, -np.inf, scores).max(axis=2, keepdims=True) - last
    return np.where(unknown, last - np.where(spread > 0, spread, 1.0), scores)


def kernel_scores(data: RowData, train: Any, test: Any, parts: Any, k: int) -> Any:
    """Return scores of default members on every partition, shape (n, k, C)."""
    scores = np.empty((len(test), k, data.n_classes), dtype=np.float32)
    for part in range(k):
        own = np.flatnonzero(parts == part)
        member = ScaledKernelClassifier().fit(train[own], data.y_train[own])
        found = np.full((len(test), 1, data.n_classes), -np.inf)
        found[:, 0, member.classes_] = member.decision_function(test)
        scores[:, part] = ranked(found)[:, 0]
    return scores


def main() -> None:
    """Let both vote, alone and together."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True, help="file of run.py")
    parser.add_argument("--scores", type=Path, required=True, help="--out of the networks' run")
    parser.add_argument(
        "--recipes", type=Path, default=Path("research/experiments/strong_members/recipes")
    )
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    data = data_from_pack(options.data)
    recipe = load_recipes(options.recipes)[ROW]
    k = recipe.n_partitions
    _, parts = make_partitions(recipe, data)
    both = zip(mapped(data, options.features), (data.x_train, data.x_test), strict=True)
    train, test = (np.concatenate([rows, colours(images)], axis=1) for rows, images in both)
    default = standardized(kernel_scores(data, train, test, parts.assignment, k))
    network = standardized(read_scores(options.scores / ROW, len(test), k).astype(np.float32))
    command = (
        "python research/experiments/signs/committee.py --data PACK --features FILE --scores DIR"
    )
    write_votes(
        default,
        data,
        f"{ROW}-KIND-edges",
        "edges and colours, partitions by pixel sums",
        options.out,
        dataset_title="GTSRB",
        settings="default members on histograms and colours",
        chosen_on="nothing; research/experiments/signs/README.md",
        command=command,
    )
    write_votes(
        default + network,
        data,
        f"{ROW}-KIND-network-edges",
        "tuned ResNet-10, edges and colours",
        options.out,
        dataset_title="GTSRB",
        settings=f"default members on histograms and colours, networks of {ROW}",
        chosen_on="Tiny ImageNet (networks); research/experiments/signs/README.md",
        command=command,
    )


if __name__ == "__main__":
    main()
