"""Defences to compare with."""

from __future__ import annotations

from poisonproof_research.baselines.label_smoothing import LabelSmoothingClassifier, SmoothedLabels
from poisonproof_research.baselines.randomized_ablation import (
    plot_poisoned_shares,
    poisoned_share_disjoint,
    poisoned_share_random,
)

__all__ = [
    "LabelSmoothingClassifier",
    "SmoothedLabels",
    "plot_poisoned_shares",
    "poisoned_share_disjoint",
    "poisoned_share_random",
]
