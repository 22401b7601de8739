"""Certificates against the labels of a test set: accuracies, medians, tables and the curve."""

from __future__ import annotations

from poisonproof.evaluation.accuracy import (
    base_accuracy,
    certified_accuracy,
    clean_accuracy,
    median_radius,
    protected_share,
    published_median,
)
from poisonproof.evaluation.collective import CollectiveCertificate, collective_certificate
from poisonproof.evaluation.display import CertifiedAccuracyDisplay
from poisonproof.evaluation.sentences import (
    SAME_SOURCE,
    closing_sentences,
    half_radius,
    seen_sentence,
)
from poisonproof.evaluation.summary import Summary, default_sizes, summarize
from poisonproof.evaluation.tables import ClassRow, ClassTable, per_class_table

__all__ = [
    "SAME_SOURCE",
    "CertifiedAccuracyDisplay",
    "ClassRow",
    "ClassTable",
    "CollectiveCertificate",
    "Summary",
    "base_accuracy",
    "certified_accuracy",
    "clean_accuracy",
    "closing_sentences",
    "collective_certificate",
    "default_sizes",
    "half_radius",
    "median_radius",
    "per_class_table",
    "protected_share",
    "published_median",
    "seen_sentence",
    "summarize",
]
