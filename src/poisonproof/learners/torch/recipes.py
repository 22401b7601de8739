"""Published training recipes, as parameters of `TorchLearner`."""

from __future__ import annotations

from typing import Any

from poisonproof.learners.torch.specification import Augmentation

__all__ = ["AUGMENTATIONS", "RECIPES"]

AUGMENTATIONS = {
    "crop": Augmentation(crop=4),
    "crop-flip": Augmentation(crop=4, flip=True),
    "strong": Augmentation(
        crop=4,
        flip=True,
        rotate=15.0,
        scale=0.1,
        shift=0.05,
        brightness=0.3,
        contrast=0.3,
        saturation=0.3,
        cutout=8,
    ),
}
"""Named rules of augmentation."""

# The rate falls after the epochs 60, 120 and 160 counted from 0, so first in the next ones.
_NIN: dict[str, Any] = {
    "network": "nin",
    "epochs": 200,
    "batch_size": 128,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "step",
    "milestones": (61, 121, 161),
    "gamma": 0.2,
    "augmentation": "crop",
    "normalize": "partition",
    "seed_rule": "partition",
}

RECIPES: dict[str, dict[str, Any]] = {
    "nin-mnist": {**_NIN, "image_shape": (1, 28, 28)},
    "nin-cifar10": {**_NIN, "image_shape": (3, 32, 32), "augmentation": "crop-flip"},
    "nin-gtsrb": {**_NIN, "image_shape": (3, 48, 48)},
    "simclr-head": {
        "network": "linear",
        "epochs": 100,
        "batch_size": 512,
        "learning_rate": 1.0,
        "nesterov": False,
        "weight_decay": 0.0,
        "milestones": (60, 75, 90),
        "gamma": 0.2,
        "normalize": "none",
    },
}
"""Name to parameters; DPA on images, and SS-DPA's linear members on SimCLR features."""
