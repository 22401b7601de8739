"""Train a few partitions of other sizes by the recipe of a row, to compare with known members.

    python research/experiments/strong_members/trials.py --row cifar10-strong-150 --recipes RECIPES \
        --data PACK --out trials.json

One partition of k = 50 and one of k = 250 are known to reach 70.5 % and 48.5 %, with 600 and 1,500
epochs of a recipe of which not everything is on record. Nothing is chosen here.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof_research.reproduction import data_from_pack, load_recipes, make_partitions
from poisonproof_research.reproduction.learner import make_learner

TRIALS = {50: ((891, 1099), 600), 250: ((159, 230), 1500)}
"""For k: the sizes of its partitions, and epochs."""


def main() -> None:
    """Train the first partitions of every k and write how often their members are right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--row", required=True)
    parser.add_argument("--recipes", type=Path, default=Path(__file__).parent / "recipes")
    parser.add_argument("--data", type=Path, required=True, help="pack of CIFAR-10")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    options = parser.parse_args()
    recipe, data = load_recipes(options.recipes)[options.row], data_from_pack(options.data)
    found: dict[str, Any] = {"row": recipe.id, "learner": recipe.learner, "trials": []}
    for k, (sizes, epochs) in TRIALS.items():
        began = time.perf_counter()
        changed = {**recipe.learner, "epochs": epochs, "stack_width": options.members}
        trial = replace(recipe, n_partitions=k, partition_sizes=sizes, learner=changed)
        _, parts = make_partitions(trial, data)
        learner = make_learner(trial, options.device)
        members = learner.fit_members(
            parts, list(range(options.members)), data.n_classes, recipe.seed
        )
        right = 100 * (members.votes(data.x_test) == data.y_test[:, None]).mean(axis=0)
        seconds = round(time.perf_counter() - began, 1)
        found["trials"].append(
            {
                "k": k,
                "epochs": epochs,
                "seconds": seconds,
                "mean_percent": round(float(np.mean(right)), 2),
                "member_percent": right.round(2).tolist(),
            }
        )
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"k = {k}: {np.mean(right):.2f} % in {seconds} s", flush=True)


if __name__ == "__main__":
    main()
