"""Certificates against the labels of a test set: accuracies, medians, the curve, and plans."""

from __future__ import annotations

from poisonproof.evaluation.accuracy import (
    SAME_SOURCE,
    Summary,
    base_accuracy,
    certified_accuracy,
    clean_accuracy,
    closing_sentences,
    default_sizes,
    median_radius,
    protected_share,
    seen_sentence,
    summarize,
)
from poisonproof.evaluation.display import CertifiedAccuracyDisplay
from poisonproof.evaluation.planning import (
    CurvePoint,
    LearningCurves,
    Plan,
    PlanRow,
    make_plan,
    measure_curves,
)

__all__ = [
    "SAME_SOURCE",
    "CertifiedAccuracyDisplay",
    "CurvePoint",
    "LearningCurves",
    "Plan",
    "PlanRow",
    "Summary",
    "base_accuracy",
    "certified_accuracy",
    "clean_accuracy",
    "closing_sentences",
    "default_sizes",
    "make_plan",
    "measure_curves",
    "median_radius",
    "protected_share",
    "seen_sentence",
    "summarize",
]
