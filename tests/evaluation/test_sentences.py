"""The closing sentence says what is proved, with the right unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poisonproof import certify_votes
from poisonproof.certificates import certify_grid
from poisonproof.certificates.threats import make_threat, parse_threat
from poisonproof.evaluation import closing_sentences
from poisonproof.evaluation.accuracy import Radii
from poisonproof.evaluation.surface import Surface
from poisonproof.partition import Blocks

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


@pytest.mark.parametrize(
    ("outer", "blocks", "threat", "words"),
    [
        (
            "rows",
            {"image_shape": (3, 3), "kind": "pixels"},
            "insert_delete",
            "any 4 rows are inserted or deleted (or 2 rewritten) and any 4 pixels of the image to "
            "predict are changed",
        ),
        (
            "features",
            {"widths": (1,) * 9},
            "replace",
            "any 2 rows are changed in any way and any 4 columns are changed in all training rows "
            "and in the row to predict",
        ),
        (
            "rows",
            {"kind": "words"},
            "insert_delete/group",
            "an attacker controls any 4 of the 80 contributors and any 4 words of the text to "
            "predict are inserted or deleted (or 2 replaced)",
        ),
        (
            "rows",
            {"kind": "words", "ngram": 2},
            "insert_delete",
            "any 4 rows are inserted or deleted (or 2 rewritten) and any 1 word of the text to "
            "predict is inserted or deleted (or 1 replaced)",
        ),
        (
            "rows",
            {"kind": "words", "ngram": 3},
            "insert_delete",
            "any 4 rows are inserted or deleted (or 2 rewritten) and any 4 sequences of 3 words of "
            "the text to predict are changed",
        ),
    ],
)
def test_the_sentence_of_a_grid_counts_rows_and_features(
    outer: str, blocks: dict[str, Any], threat: str, words: str
) -> None:
    votes = np.zeros((3, 9, 9), dtype=int)
    certificates = certify_grid(votes, 2, outer, threat=parse_threat(threat))
    surface = Surface.of(certificates, Blocks(n_blocks=9, **blocks), np.zeros(3, dtype=int))
    start = "At least half of the test rows keep their correct label even if "
    assert surface.sentence(n_groups=80) == f"{start}{words}."


def test_a_grid_that_withstands_rows_or_features_alone_says_so() -> None:
    votes = np.zeros((1, 3, 3), dtype=int)
    votes[0, :, 0] = votes[0, 0, 1] = 1
    certificates = certify_grid(votes, 2)
    assert certificates.rows.tolist() == [[0]]
    surface = Surface.of(certificates, Blocks(n_blocks=3, widths=(1,) * 3))
    assert surface.sentence().startswith("No attack on rows or features")
    assert surface.medians == (0,)


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
