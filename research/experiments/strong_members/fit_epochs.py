"""Choose the length of training by time alone: as many epochs as a budget of seconds allows.

    python research/experiments/strong_members/fit_epochs.py --row cifar10-strong-120 --data PACK \
        --seconds 300 --out RECIPES

A few members are trained for a few epochs, and nobody looks at how good they are. A copy of the
recipe file is written, with the epochs found.
"""

from __future__ import annotations

import argparse
import re
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from poisonproof.partition import PartitionedData
from poisonproof_research.reproduction.learner import make_learner
from poisonproof_research.reproduction.recipe import Recipe, load_recipes
from poisonproof_research.reproduction.row_data import RowData, data_from_pack, make_partitions

HOME = Path(__file__).parent / "recipes"
EPOCHS = range(50, 1001, 50)


class Pace:
    """Seconds that members need, measured on a few of them."""

    def __init__(self, recipe: Recipe, data: RowData, parts: PartitionedData, device: str) -> None:
        self.recipe, self.rows = recipe, len(data.y_train)
        which = list(range(2 * recipe.learner["stack_width"]))
        few = int(parts.sizes[which].sum())
        _train(recipe, parts, which, 1, device)  # libraries set themselves up for these shapes
        short, _ = _train(recipe, parts, which, 3, device)
        long, ensemble = _train(recipe, parts, which, 33, device)
        self.per_row = (long - short) / (30 * few)
        self.start = max(0.0, long - 33 * few * self.per_row) / len(which)
        began = time.perf_counter()
        ensemble.votes(data.x_test)
        ensemble.scores(data.x_test)
        self.votes = (time.perf_counter() - began) / len(which)

    def seconds(self, epochs: int) -> float:
        """Return how long the whole row takes."""
        members = self.recipe.n_partitions * (self.start + self.votes)
        return self.rows * epochs * self.per_row + members

    def __str__(self) -> str:
        return (
            f"{1 / self.per_row:,.0f} sample-steps/s, {self.start:.2f} s to start and "
            f"{self.votes:.2f} s to ask a member"
        )


def _train(
    recipe: Recipe, parts: PartitionedData, which: list[int], epochs: int, device: str
) -> tuple[float, Any]:
    """Train some members; return the seconds and the ensemble."""
    changed = {**recipe.learner, "epochs": epochs, "warmup_epochs": 0}
    learner = make_learner(replace(recipe, learner=changed), device)
    began = time.perf_counter()
    ensemble = learner.fit_members(parts, which, recipe.data.n_classes, recipe.seed)
    return time.perf_counter() - began, ensemble


def main() -> None:
    """Measure, choose, and write the recipes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--row", required=True)
    parser.add_argument("--data", type=Path, required=True, help="pack of the dataset")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="folder for the recipes")
    options = parser.parse_args()
    recipe = load_recipes(HOME)[options.row]
    data = data_from_pack(options.data)
    _, parts = make_partitions(recipe, data)
    pace = Pace(recipe, data, parts, options.device)
    fitting = [epochs for epochs in EPOCHS if pace.seconds(epochs) <= options.seconds]
    epochs = max(fitting, default=EPOCHS[0])
    print(f"{options.row}: {pace}; {epochs} epochs should take {pace.seconds(epochs):.0f} s")
    options.out.mkdir(parents=True, exist_ok=True)
    for file in HOME.glob("*.toml"):
        text = file.read_text(encoding="utf-8")
        for row in tomllib.loads(text)["row"]:
            if row["id"] == options.row:
                own = rf"(?ms)(^\[learner\.{row['learner']}\]$.*?^epochs = )\d+"
                text = re.sub(own, rf"\g<1>{epochs}", text, count=1)
                (options.out / file.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
