"""Choose how members are regularised, on another dataset than the one they are meant for.

    python research/experiments/tiny_tasks.py --images tiny-imagenet-200 --out TASKS.npz
    python research/experiments/strong_members/choose.py --tasks TASKS.npz --out choose.json

Members as those of the row ``cifar10-strong-120`` are trained on 400 images of Tiny ImageNet, two
in each of five tasks, once per setting. No image of CIFAR-10 is read, so what comes out best may
be used there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof.partition import PartitionedData
from poisonproof_research.reproduction import load_recipes
from poisonproof_research.reproduction.learner import make_learner

sys.path.insert(0, str(Path(__file__).parent.parent))
from tiny_tasks import Task, read_tasks

ROW = "cifar10-strong-120"
OWN, PER_TASK = 400, 2
SMALL_BATCHES = {"batch_size": 16, "weight_decay": 5e-3}
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "ten times the decay": {"weight_decay": 5e-3},
    "ten times the decay, a fifth of the rate": {"weight_decay": 5e-3, "learning_rate": 0.02},
    "batches of 16, a quarter of the rate": {"batch_size": 16, "learning_rate": 0.025},
    "batches of 16, ten times the decay, rate 0.025": {**SMALL_BATCHES, "learning_rate": 0.025},
    "batches of 16, ten times the decay, rate 0.01": {**SMALL_BATCHES, "learning_rate": 0.01},
    "batches of 16, ten times the decay, rate 0.005": {**SMALL_BATCHES, "learning_rate": 0.005},
    "the same, mixup 1": {**SMALL_BATCHES, "learning_rate": 0.005, "mixup": 1.0},
    "the same, crops and flips alone, no mixup": {
        **SMALL_BATCHES,
        "learning_rate": 0.005,
        "augmentation": "crop-flip",
        "mixup": 0.0,
    },
}


def partitions(tasks: list[Task]) -> PartitionedData:
    """Return the images of all tasks, one partition per member."""
    images = np.concatenate([task.x_train[: PER_TASK * OWN] for task in tasks])
    labels = np.concatenate([task.y_train[: PER_TASK * OWN] for task in tasks])
    ends = np.arange(0, len(labels) + 1, OWN)
    return PartitionedData(
        np.ascontiguousarray(np.moveaxis(images, -1, 1)), labels, np.arange(len(labels)), ends
    )


def percents(ensemble: Any, tasks: list[Task]) -> list[float]:
    """Return how often every member is right about the test images of its own task."""
    found = []
    for number, task in enumerate(tasks):
        votes = ensemble.votes(np.ascontiguousarray(np.moveaxis(task.x_test, -1, 1)))
        own = votes[:, PER_TASK * number : PER_TASK * (number + 1)]
        found += (100 * (own == task.y_test[:, None]).mean(axis=0)).round(2).tolist()
    return found


def main() -> None:
    """Train some members under every setting and write their accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=Path, required=True, help="file of tiny_tasks.py")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    given = parser.parse_args()
    tasks = read_tasks(given.tasks)
    parts = partitions(tasks)
    recipe = load_recipes(Path(__file__).parent / "recipes")[ROW]
    fixed = {"epochs": given.epochs, "width": given.width, "stack_width": len(parts)}
    found: dict[str, Any] = {"epochs": given.epochs, "width": given.width, "settings": {}}
    for name, setting in SETTINGS.items():
        began = time.perf_counter()
        changed = replace(recipe, learner={**recipe.learner, **fixed, **setting})
        learner = make_learner(changed, given.device)
        members = learner.fit_members(parts, list(range(len(parts))), 10, recipe.seed)
        right = percents(members, tasks)
        seconds = round(time.perf_counter() - began, 1)
        found["settings"][name] = {**setting, "member_percent": right, "seconds": seconds}
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {np.mean(right):.2f} % in {seconds} s", flush=True)


if __name__ == "__main__":
    main()
