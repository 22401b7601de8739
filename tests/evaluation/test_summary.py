"""Sentences say the same as the numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poisonproof.certificates import OBSERVED_LABELS, certify_votes, make_threat
from poisonproof.evaluation import default_sizes, summarize
from poisonproof.evaluation.accuracy import LITTLE_LEARNED
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


def test_a_model_that_learned_next_to_nothing_is_not_flattered():
    truth = [0] * 76 + [1] * 24
    votes = np.zeros((100, 51), dtype=int)
    votes[76:78] = 1  # two of the 24 rows of the rare class are found
    summary = summarize(certify_votes(votes, 2), truth)
    assert summary.majority_share == 0.76
    assert summary.learned == pytest.approx(2 / 24)
    assert summary.balanced_accuracy == pytest.approx((1 + 2 / 24) / 2)
    assert summary.median_radius == 25
    assert LITTLE_LEARNED in summary.sentences()
    votes[76:79] = 1
    assert LITTLE_LEARNED not in summarize(certify_votes(votes, 2), truth).sentences()


def test_a_summary_counts_every_class_and_both_medians():
    votes = np.array([[0] * 9, [0] * 9, [1] * 6 + [0] * 3, [0] * 9, [2] * 9])
    summary = summarize(certify_votes(votes, 4).with_classes(list("abcd")), list("aabbc"))
    found = {one.label: one for one in summary.classes}
    assert list(found) == ["a", "b", "c"]  # d has no test row
    assert (found["b"].n_rows, found["b"].recall, found["b"].median_radius) == (2, 0.5, 1)
    assert summary.median_radius == summary.median_of_all == 4
    assert found["b"].certified == 0.0
    assert "Median radius: 4 (all predictions), 4 (stay correct)." in str(summary)
    assert summary.to_dict()["classes"][1]["recall"] == 0.5
