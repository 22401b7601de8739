"""Small tasks of Tiny ImageNet, for choices that no label of CIFAR-10 may make.

    python research/experiments/tiny_tasks.py --images tiny-imagenet-200 --out TASKS.npz

Five tasks of ten classes, none of which looks like one of CIFAR-10's; pixels are halved to
32 x 32. Of each task 800 images are kept to train on and 1,800 to ask about.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Planes, cars, trucks, ships and other vehicles; birds, cats, dogs, frogs, deer, horses and what
# has hoofs, horns or claws as they do.
LIKE_CIFAR = """
    n01641577 n01644900 n01855672 n02002724 n02056570 n02058221 n02085620 n02094433 n02099601
    n02099712 n02106662 n02113799 n02123045 n02123394 n02124075 n02125311 n02129165 n02403003
    n02410509 n02415577 n02423022 n02437312 n02814533 n02917067 n03100240 n03393912 n03444034
    n03447447 n03599486 n03662601 n03670208 n03796401 n03977966 n04008634 n04146614 n04285008
    n04465501 n04487081
"""
FIRST_CLASSES, CLASSES = (0, 3, 6, 9, 12), 10
OWN, ASKED = slice(800), slice(3200, 5000)


class Task(NamedTuple):
    """Images (n, 32, 32, 3) of ten classes, to train on and to ask about."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]


def read_tasks(file: Path) -> list[Task]:
    """Return the tasks that this program wrote."""
    with np.load(file) as kept:
        return [Task(*parts) for parts in zip(*(kept[name] for name in Task._fields), strict=True)]


def _task(home: Path, number: int) -> Task:
    usable = [path for path in sorted((home / "train").iterdir()) if path.name not in LIKE_CIFAR]
    chosen = usable[FIRST_CLASSES[number] :: len(usable) // CLASSES][:CLASSES]
    files = [file for path in chosen for file in sorted((path / "images").iterdir())]
    order = np.random.default_rng(number).permutation(len(files))
    labels = np.repeat(np.arange(CLASSES), len(files) // CLASSES)[order]
    images = np.stack([_halved(files[i]) for i in order])
    return Task(images[OWN], labels[OWN], images[ASKED], labels[ASKED])


def _halved(file: Path) -> NDArray[np.uint8]:
    pixels = np.asarray(Image.open(file).convert("RGB"), dtype=np.float64)
    blocks = pixels.reshape(32, 2, 32, 2, 3).mean(axis=(1, 3))
    return blocks.round().astype(np.uint8)


def main() -> None:
    """Read the published images and write the tasks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=Path, required=True, help="folder with train/")
    parser.add_argument("--out", type=Path, required=True, help="an npz file")
    options = parser.parse_args()
    tasks = [_task(options.images, number) for number in range(len(FIRST_CLASSES))]
    columns = zip(Task._fields, map(np.stack, zip(*tasks, strict=True)), strict=True)
    np.savez_compressed(options.out, **dict(columns))


if __name__ == "__main__":
    main()
