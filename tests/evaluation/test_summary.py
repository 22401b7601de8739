"""Sentences say the same as the numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poisonproof.certificates import OBSERVED_LABELS, certify_votes, make_threat
from poisonproof.evaluation import default_sizes, summarize
from poisonproof.exceptions import InvalidInputError, UnknownLabelError

VOTES = np.array([[0] * 9, [0] * 6 + [1] * 3, [1] * 9, [1] * 5 + [0] * 4, [0] * 8 + [-1]])
Y = np.array([0, 0, 1, 1, 1])


def test_summary_holds_every_number():
    summary = summarize(certify_votes(VOTES, 3), Y, sizes=[1, 4])
    assert (summary.n_rows, summary.n_members, summary.n_classes) == (5, 9, 3)
    assert summary.clean_accuracy == 0.8
    assert summary.base_accuracy == (9 + 6 + 9 + 5 + 0) / 45
    assert summary.median_radius == 1
    assert summary.certified == (0.6, 0.4)
    assert json.loads(json.dumps(summary.to_dict()))["certified_accuracy"] == [
        {"size": 1, "accuracy": 0.6},
        {"size": 4, "accuracy": 0.4},
    ]


@pytest.mark.parametrize(
    ("threat", "k", "sentence"),
    [
        ("insert_delete", 9, "even if any 4 rows are inserted or deleted."),
        ("insert_delete", 3, "even if any 1 row is inserted or deleted."),
        ("replace/group", 9, "even if any 4 contributors are changed in any way."),
        ("label_flip/sample", 4001, "even if any 2,000 samples are relabelled."),
        ("insert_delete", 1, "already 1 row inserted or deleted might not."),
    ],
)
def test_the_median_is_told_in_words_with_its_unit(threat, k, sentence):
    certificates = certify_votes(np.zeros((2, k), int), 2, threat)
    assert sentence in str(summarize(certificates, [0, 0]))


def test_a_model_that_is_mostly_wrong_has_no_median():
    summary = summarize(certify_votes(np.zeros((3, 9), int), 2), [0, 1, 1])
    assert summary.median_radius is None
    assert "Fewer than half" in str(summary)
    assert summary.to_dict()["median_radius"] is None


def test_assumptions_are_never_left_out():
    threat = make_threat("insert_delete", assumptions=(OBSERVED_LABELS,))
    assert f"Assumed: {OBSERVED_LABELS}." in str(summarize(certify_votes(VOTES, 2, threat), Y))


def test_default_sizes_end_at_the_largest_radius():
    assert default_sizes(certify_votes(np.zeros((1, 401), int), 2)).tolist() == [
        *(0, 1, 2, 5, 10, 20, 50, 100, 200)
    ]
    assert default_sizes(certify_votes([[0, 1]], 2)).tolist() == [0]


def test_labels_that_do_not_fit_are_refused():
    certificates = certify_votes(VOTES, 3)
    with pytest.raises(UnknownLabelError):
        summarize(certificates, [0, 0, 1, 1, 7])
    with pytest.raises(InvalidInputError, match="one label per certificate"):
        summarize(certificates, [0])
