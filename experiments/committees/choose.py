"""What copies of their images should members of committees see? Asked on Tiny ImageNet.

    python experiments/committees/choose.py --images tiny-imagenet-200 --out choose.json

Five tasks of ten classes, none of which looks like one of CIFAR-10's; pixels are halved to
32 x 32. In each task one member of every kind sees 400 images and is asked about 1,800 others. No
image of CIFAR-10 is read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from maps import MAPS, MOVED, PLAIN, View, edges
from numpy.typing import NDArray
from PIL import Image

from poisonproof.learners.closed_form import ScaledKernelClassifier
from poisonproof.learners.committee import equal_voices

# Planes, cars, trucks, ships and other vehicles; birds, cats, dogs, frogs, deer, horses and what
# has hoofs, horns or claws as they do.
LIKE_CIFAR = """
    n01641577 n01644900 n01855672 n02002724 n02056570 n02058221 n02085620 n02094433 n02099601
    n02099712 n02106662 n02113799 n02123045 n02123394 n02124075 n02125311 n02129165 n02403003
    n02410509 n02415577 n02423022 n02437312 n02814533 n02917067 n03100240 n03393912 n03444034
    n03447447 n03599486 n03662601 n03670208 n03796401 n03977966 n04008634 n04146614 n04285008
    n04465501 n04487081
"""
TASKS, CLASSES = (0, 3, 6, 9, 12), 10
OWN, ASKED = slice(400), slice(3200, 5000)
VIEWS = {
    "mirrored": PLAIN,
    "three": MOVED["patches"],
    "six": MOVED["waves"],
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


def task(home: Path, number: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return 5,000 images of ten classes, (n, 32, 32, 3), in random order, and their classes."""
    usable = [path for path in sorted((home / "train").iterdir()) if path.name not in LIKE_CIFAR]
    chosen = usable[number :: len(usable) // CLASSES][:CLASSES]
    files = [file for path in chosen for file in sorted((path / "images").iterdir())]
    images = np.stack([_halved(file) for file in files])
    labels = np.repeat(np.arange(CLASSES), len(files) // CLASSES)
    order = np.random.default_rng(TASKS.index(number)).permutation(len(files))
    return images[order], labels[order]


def _halved(file: Path) -> NDArray[np.uint8]:
    pixels = np.asarray(Image.open(file).convert("RGB"), dtype=np.float64)
    blocks = pixels.reshape(32, 2, 32, 2, 3).mean(axis=(1, 3))
    return blocks.round().astype(np.uint8)


def mapped(name: str, images: NDArray[np.uint8]) -> NDArray[Any]:
    """Return what members of one kind see of some images."""
    if name == "edges":
        return edges(images)
    return np.sqrt(np.maximum(MAPS[name].transform(images), 0.0))


def scores_of(name: str, views: tuple[View, ...], images: Any, labels: Any) -> NDArray[np.float64]:
    """Return the scores of one member for the images it is asked about."""
    rows = np.concatenate([mapped(name, view.of(images[OWN])) for view in views])
    member = ScaledKernelClassifier(n_centers=len(rows))
    member.fit(rows, np.tile(labels[OWN], len(views)))
    return member.decision_function(mapped(name, images[ASKED]))


def main() -> None:
    """Train all members, and write how often each, and each committee, is right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=Path, required=True, help="folder with train/")
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    options = parser.parse_args()
    right: dict[str, list[float]] = {}
    for number in TASKS:
        images, labels = task(options.images, number)
        scores = {
            (name, copies): scores_of(name, VIEWS[copies], images, labels)
            for name, kinds in TRIED.items()
            for copies in kinds
        }
        groups = [*({name: copies} for name, copies in scores), *COMMITTEES]
        for group in groups:
            joint = sum(equal_voices(scores[one]) for one in group.items())
            share = float((np.asarray(joint).argmax(axis=1) == labels[ASKED]).mean())
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
