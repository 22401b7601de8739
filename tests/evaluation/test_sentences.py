"""The closing sentence says what is proved, with the right unit."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof import certify_votes
from poisonproof.certificates.threats import make_threat
from poisonproof.evaluation import closing_sentences
from poisonproof.evaluation.accuracy import Radii

VOTES = np.array([[1] * 75] * 3 + [[0] * 40 + [1] * 35] * 2)


@pytest.mark.parametrize(
    ("name", "unit", "words"),
    [
        ("insert_delete", "group", "an attacker controls any 37 of the 5,120 contributors."),
        (
            "insert_delete",
            "row",
            "any 37 rows are inserted or deleted.",
        ),
        (
            "label_flip",
            "row",
            "any 37 rows are relabelled.",
        ),
        ("label_flip", "sample", "any 37 samples are relabelled."),
        ("replace", "row", "any 18 rows are changed in any way."),
    ],
)
def test_the_sentence_counts_in_the_unit_of_the_threat(name: str, unit: str, words: str) -> None:
    certificates = certify_votes(VOTES, 2, threat=make_threat(name, unit))
    (sentence,) = closing_sentences(certificates, n_groups=5120)
    start = "At least half of the test rows keep their label, right or wrong, even if "
    assert sentence == start + words


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("row", "any 1 row is inserted or deleted."),
        ("group", "any 1 contributor is inserted or deleted."),
    ],
)
def test_one_is_singular(unit: str, words: str) -> None:
    certificates = certify_votes([[0, 0, 0]], 2, threat=make_threat("insert_delete", unit))
    (sentence,) = closing_sentences(certificates)
    assert sentence.endswith(words)


def test_half_means_at_least_half() -> None:
    certificates = certify_votes(VOTES, 2)
    median = Radii.of(certificates.radius).median()
    assert median is not None
    assert (certificates.radius >= median).mean() >= 0.5
    assert (certificates.radius > median).mean() < 0.5


def test_nothing_is_claimed_where_nothing_is_proved() -> None:
    weak = certify_votes(np.array([[0, 1, 1], [0, 0, 1]]), 2)
    (sentence,) = closing_sentences(weak)
    assert sentence.startswith("Fewer than half of the test rows are proved")
