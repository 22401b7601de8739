"""The report's counts are those of the evaluation, in whole rows."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof.evaluation import (
    certified_accuracy,
    median_radius,
    protected_share,
)
from poisonproof.evaluation.accuracy import Radii, Tally
from poisonproof.report.evidence import percent

from .conftest import random_evidence


def test_counts_equal_the_evaluation_at_every_attack_size() -> None:
    evidence = random_evidence(500, 60, 4)
    certificates, truth = evidence.certificates, evidence.y_true
    assert truth is not None
    tally = Tally.of(certificates, truth)
    sizes = np.arange(evidence.largest + 2)
    kept = [tally.kept.at(int(size)) / 500 for size in sizes]
    assert kept == certified_accuracy(certificates, truth, sizes).tolist()
    fixed = [tally.fixed.at(int(size)) / 500 for size in sizes]
    assert fixed == protected_share(certificates, sizes).tolist()
    assert tally.kept.median() == median_radius(certificates, truth)


def test_classes_equal_the_evaluation() -> None:
    evidence = random_evidence(300, 30, 5)
    assert evidence.y_true is not None
    for label, radii in enumerate(evidence.tally.by_class):
        own = evidence.y_true == label
        certificates, truth = evidence.certificates[own], evidence.y_true[own]
        assert radii.n_rows == own.sum()
        assert radii.at(3) / radii.n_rows == certified_accuracy(certificates, truth, 3)
        assert radii.median() == median_radius(certificates, truth)


def test_without_true_labels_every_prediction_counts() -> None:
    evidence = random_evidence(200, 30, 3)
    tally = Tally.of(evidence.certificates, None)
    assert tally.kept.at(0) == 200
    assert sum(radii.n_rows for radii in tally.by_class) == 200
    assert tally.kept.at(4) == tally.fixed.at(4)


def test_the_short_form_keeps_every_count() -> None:
    radii = Radii.of(np.array([5, -1, 5, 0, 2]))
    runs = dict(zip(radii.runs()[::2], radii.runs()[1::2], strict=True))
    assert runs == {0: 1, 2: 1, 5: 2}


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "-"),
        (0, 7, "0.0 %"),
        (7, 7, "100.0 %"),
        (49, 400, "12.3 %"),  # exactly 12.25
        (99_999, 100_000, "99.9 %"),
        (1, 100_000, "0.1 %"),
    ],
)
def test_shares_round_half_up_and_never_claim_all_or_none(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text
