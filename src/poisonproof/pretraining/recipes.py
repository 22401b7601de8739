"""Published recipes of unsupervised training, as parameters of `PretrainSpec`."""

from __future__ import annotations

from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["PRETRAINING", "pretraining_recipe"]

_SIMCLR: dict[str, Any] = {
    "method": "simclr",
    "epochs": 1000,
    "learning_rate": 0.5,
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "temperature": 0.5,
    # The published loss is multiplied by temperature / 0.07, as if the rate were larger.
    "loss_scale": 0.5 / 0.07,
}

PRETRAINING: dict[str, dict[str, Any]] = {
    "rotnet-mnist": {
        "method": "rotnet",
        "input_shape": (1, 28, 28),
        "epochs": 200,
        "batch_size": 128,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 5e-4,
        "schedule": "step",
        "milestones": (60, 120, 160),
        "gamma": 0.2,
        "mean": (0.1307,),
        "std": (0.3081,),
        "crop": 4,
    },
    "simclr-cifar10": {
        **_SIMCLR,
        "input_shape": (3, 32, 32),
        "batch_size": 512,
        "warmup_epochs": 10,
        "mean": (0.4914, 0.4822, 0.4465),
        "std": (0.2023, 0.1994, 0.2010),
        "flip": True,
    },
    "simclr-gtsrb": {
        **_SIMCLR,
        "input_shape": (3, 48, 48),
        "batch_size": 256,
        "mean": (0.5, 0.5, 0.5),
        "std": (0.25, 0.25, 0.25),
    },
}
"""Name to parameters."""


def pretraining_recipe(name: str, **changes: Any) -> PretrainSpec:
    """Return a published recipe, with changes.

    Examples
    --------
    >>> pretraining_recipe("rotnet-mnist").batch_size
    128
    """
    if name not in PRETRAINING:
        raise InvalidInputError(f"There is no recipe {name!r}; known: {', '.join(PRETRAINING)}.")
    return PretrainSpec(**{**PRETRAINING[name], **changes})
