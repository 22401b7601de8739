"""Choose how members are regularised, on another dataset than the one they are meant for.

    python experiments/strong_members/choose.py --data PACK_OF_GTSRB --out choose.json

Members as those of the row ``cifar10-strong-120``, but never mirrored, are trained on partitions of
GTSRB of about as many images, at 32 x 32 pixels, once per setting, and asked about GTSRB's test
images. No label of CIFAR-10 is read, so what comes out best may be used there.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poisonproof.learners.torch.recipes import AUGMENTATIONS
from poisonproof.reproduction import RowData, data_from_pack, load_recipes, make_partitions
from poisonproof.reproduction.law import make_learner

ROW = "cifar10-strong-120"
SIDE = 32
N_PARTITIONS, SIZES = 94, (369, 459)
"""Partitions of 417 images, the mean of the row's, and the smallest and the largest of them."""

SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "four times the decay": {"weight_decay": 2e-3},
    "ten times the decay, a fifth of the rate": {"weight_decay": 5e-3, "learning_rate": 0.02},
    "batches of 16, a quarter of the rate": {"batch_size": 16, "learning_rate": 0.025},
    "the same, ten times the decay": {
        "batch_size": 16,
        "learning_rate": 0.01,
        "weight_decay": 5e-3,
    },
    "crops alone, no mixup": {"augmentation": "crop", "mixup": 0.0},
}


def smaller(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images of the size that members see on CIFAR-10."""
    pixels = torch.from_numpy(images).float()
    sized = torch.nn.functional.interpolate(pixels, (SIDE, SIDE), mode="area")
    return sized.round().to(torch.uint8).numpy()


def main() -> None:
    """Train some members under every setting and write their accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="pack of GTSRB")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--test-rows", type=int, default=12_630)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    given = parser.parse_args()
    published = data_from_pack(given.data)
    x_train, x_test = smaller(published.x_train), smaller(published.x_test[: given.test_rows])
    data: RowData = replace(published, x_train=x_train, x_test=x_test)
    plain = load_recipes(Path(__file__).parent / "recipes")[ROW]
    upright = {**vars(AUGMENTATIONS["strong"]), "flip": False}
    fixed = {"epochs": given.epochs, "width": given.width, "mirrored_votes": False}
    recipe = replace(
        plain,
        n_partitions=N_PARTITIONS,
        partition_sizes=SIZES,
        learner={**plain.learner, **fixed, "augmentation": upright},
    )
    _, parts = make_partitions(recipe, data)
    found: dict[str, Any] = {"epochs": given.epochs, "width": given.width, "settings": {}}
    for name, setting in SETTINGS.items():
        began = time.perf_counter()
        learner = make_learner(replace(recipe, learner={**recipe.learner, **setting}), given.device)
        which = list(range(given.members))
        members = learner.fit_members(parts, which, data.n_classes, recipe.seed)
        right = members.votes(x_test) == data.y_test[: given.test_rows, None]
        accuracies = (100 * right.mean(axis=0)).round(2).tolist()
        seconds = round(time.perf_counter() - began, 1)
        found["settings"][name] = {**setting, "member_percent": accuracies, "seconds": seconds}
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {np.mean(accuracies):.2f} % in {seconds} s", flush=True)


if __name__ == "__main__":
    main()
