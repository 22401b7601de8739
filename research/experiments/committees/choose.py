"""Choice of the copies of images that members of committees see, on Tiny ImageNet.

    python research/experiments/tiny_tasks.py --images tiny-imagenet-200 --out TASKS.npz
    python research/experiments/committees/choose.py --tasks TASKS.npz --out choose.json

In each task one member of every kind sees 400 images. No image of CIFAR-10 is read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from maps import MAPS, MOVED, PLAIN, SIX, copies_of, edges
from numpy.typing import NDArray

from poisonproof.members.closed_form import ScaledKernelClassifier
from poisonproof.members.committee import standardized

sys.path.insert(0, str(Path(__file__).parent.parent))
from tiny_tasks import Task, read_tasks

OWN = 400
COPIES = {
    "mirrored": PLAIN,
    "three": SIX[:3],
    "six": SIX,
    "ten": MOVED["edges"],
}
TRIED = {
    "edges": ("mirrored", "six", "ten"),
    "waves": ("mirrored", "six"),
    "patches": ("mirrored", "three", "six"),
}
COMMITTEES = (
    {"edges": "mirrored", "waves": "mirrored", "patches": "mirrored"},
    {"edges": "ten", "waves": "mirrored", "patches": "mirrored"},
    {"edges": "ten", "waves": "six", "patches": "mirrored"},
    {"edges": "ten", "waves": "six", "patches": "three"},
    {"edges": "six", "waves": "six", "patches": "six"},
    {"edges": "ten", "waves": "six", "patches": "six"},
)


def mapped(name: str, images: NDArray[np.uint8]) -> NDArray[Any]:
    """Return what members of one kind see of some images."""
    if name == "edges":
        return edges(images)
    return np.sqrt(np.maximum(MAPS[name].transform(images), 0.0))


def scores_of(name: str, numbers: tuple[int, ...], task: Task) -> NDArray[np.float64]:
    """Return the scores of one member for the images it is asked about."""
    copies = copies_of(task.x_train[:OWN])
    rows = np.concatenate([mapped(name, copies[number]) for number in numbers])
    member = ScaledKernelClassifier(n_centers=len(rows))
    member.fit(rows, np.tile(task.y_train[:OWN], len(numbers)))
    return member.decision_function(mapped(name, task.x_test))


def main() -> None:
    """Train all members, and write how often each, and each committee, is right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=Path, required=True, help="file of tiny_tasks.py")
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    options = parser.parse_args()
    right: dict[str, list[float]] = {}
    for number, task in enumerate(read_tasks(options.tasks)):
        scores = {
            (name, copies): scores_of(name, COPIES[copies], task)
            for name, kinds in TRIED.items()
            for copies in kinds
        }
        groups = [*({name: copies} for name, copies in scores), *COMMITTEES]
        for group in groups:
            joint = np.sum([standardized(scores[one]) for one in group.items()], axis=0)
            share = float((joint.argmax(axis=1) == task.y_test).mean())
            words = ", ".join(f"{name} ({copies})" for name, copies in group.items())
            right.setdefault(words, []).append(round(100 * share, 2))
        print(f"task {number} is done", flush=True)
    found = {
        words: {"mean": round(float(np.mean(each)), 2), "tasks": each}
        for words, each in right.items()
    }
    options.out.write_text(json.dumps({"right_percent": found}, indent=1) + "\n", encoding="utf-8")
    for words, one in found.items():
        print(f"{words}: {one['mean']:.2f} %")


if __name__ == "__main__":
    main()
