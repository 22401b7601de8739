"""Real partitions for `deep_h200.py`, and the recipes that are trained on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from poisonproof.networks import TorchLearner
from poisonproof.partition.partitioned import PartitionedData
from poisonproof_research.reproduction.row_data import RowData, data_from_pack

__all__ = ["MODULUS", "SHAPES", "STACK", "Part", "join", "nin", "packed", "partitions", "resnet"]

Part = tuple[np.ndarray, np.ndarray]
SHAPES = {28: (1, 28, 28), 32: (3, 32, 32)}
STACK = 64

MODULUS, SHARE = 50, 10
"""CIFAR-10 is cut where the pixel sum modulo 50 is below 10: whole partitions at k = 50 (ten of
them) and at k = 1000 (two hundred). A pack with these rows alone gives the same partitions."""


def packed(folder: Path, name: str) -> RowData:
    """Read a pack in ``folder/name`` from ``python -m poisonproof_research data NAME --pack``."""
    return data_from_pack(folder / name)


def partitions(data: RowData, n_partitions: int) -> list[Part]:
    """Cut a training set by its pixel sums, as published; of CIFAR-10 only a fifth."""
    chosen: list[int] = list(range(n_partitions))
    if data.name == "cifar10":
        chosen = [i for i in chosen if i % MODULUS < SHARE]
    place = data.sums % n_partitions
    return [(data.x_train[place == i], data.y_train[place == i]) for i in chosen]


def join(parts: list[Part]) -> PartitionedData:
    """Put partitions together as they are."""
    X = np.concatenate([x for x, _ in parts])
    y = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    offsets = np.cumsum([0, *(len(labels) for _, labels in parts)])
    return PartitionedData(X, y, np.arange(len(y)), offsets)


def nin(side: int, **changes: object) -> TorchLearner:
    """Return the published recipe on CUDA."""
    options = {
        "milestones": (61, 121, 161), "augmentation": "crop" if side == 28 else "crop-flip",
        "image_shape": SHAPES[side], "device": "cuda", "stack_width": STACK,
    }  # fmt: skip
    return TorchLearner("nin", **{**options, **changes})


def resnet(**changes: object) -> TorchLearner:
    """Return the stronger member: ResNet-10, strong augmentation, mixup, cosine."""
    options = {
        "epochs": 600, "width": 64, "batch_size": 128, "learning_rate": 0.1, "schedule": "cosine",
        "augmentation": "strong", "mixup": 0.2, "image_shape": (3, 32, 32), "device": "cuda",
    }  # fmt: skip
    return TorchLearner("resnet10", **{**options, **changes})
