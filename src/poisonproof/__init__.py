"""Classifiers with a proof that no attacker who poisons up to N training rows changes a prediction.

The public names are imported on first use, so that ``poisonproof.certificates`` needs NumPy alone.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# MKL, which multiplies for torch, may round by where in memory a matrix lies, so that a member's
# bits would depend on its place among the others. It reads this once, at its first product.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__version__ = "0.1.0"

_HOMES = {
    "Certificates": "poisonproof.certificates",
    "ClusterVoteClassifier": "poisonproof.estimators",
    "DPAClassifier": "poisonproof.estimators",
    "GridClassifier": "poisonproof.estimators",
    "NeighborVoteClassifier": "poisonproof.estimators",
    "SSDPAClassifier": "poisonproof.estimators",
    "TorchLearner": "poisonproof.networks",
    "WeightedVoteClassifier": "poisonproof.estimators",
    "certify_scores": "poisonproof.certificates",
    "certify_votes": "poisonproof.certificates",
    "load": "poisonproof.estimators",
}

# `TorchLearner` is public, too, but needs an extra: a star import must work without it.
__all__ = [
    "Certificates",
    "ClusterVoteClassifier",
    "DPAClassifier",
    "GridClassifier",
    "NeighborVoteClassifier",
    "SSDPAClassifier",
    "WeightedVoteClassifier",
    "certify_scores",
    "certify_votes",
    "load",
]

if TYPE_CHECKING:
    from poisonproof.certificates import Certificates, certify_scores, certify_votes
    from poisonproof.estimators import (
        ClusterVoteClassifier,
        DPAClassifier,
        GridClassifier,
        NeighborVoteClassifier,
        SSDPAClassifier,
        WeightedVoteClassifier,
        load,
    )
    from poisonproof.networks import TorchLearner as TorchLearner


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'poisonproof' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
