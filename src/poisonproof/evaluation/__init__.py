"""Certificates against the labels of a test set: accuracies, medians, tables and the curve."""

from __future__ import annotations

from poisonproof.evaluation.accuracy import (
    SAME_SOURCE,
    Summary,
    base_accuracy,
    certified_accuracy,
    clean_accuracy,
    closing_sentences,
    default_sizes,
    half_radius,
    median_radius,
    protected_share,
    published_median,
    seen_sentence,
    summarize,
)
from poisonproof.evaluation.display import (
    CertifiedAccuracyDisplay,
    ClassRow,
    ClassTable,
    per_class_table,
)
from poisonproof.evaluation.planning import (
    CurvePoint,
    LearningCurves,
    Plan,
    PlanRow,
    declared_partitions,
    load_curves,
    make_plan,
    measure_curves,
    save_curves,
)

__all__ = [
    "SAME_SOURCE",
    "CertifiedAccuracyDisplay",
    "ClassRow",
    "ClassTable",
    "CurvePoint",
    "LearningCurves",
    "Plan",
    "PlanRow",
    "Summary",
    "base_accuracy",
    "certified_accuracy",
    "clean_accuracy",
    "closing_sentences",
    "declared_partitions",
    "default_sizes",
    "half_radius",
    "load_curves",
    "make_plan",
    "measure_curves",
    "median_radius",
    "per_class_table",
    "protected_share",
    "published_median",
    "save_curves",
    "seen_sentence",
    "summarize",
]
