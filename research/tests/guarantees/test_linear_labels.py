"""Flips counted within members: real refits, and what would void the count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.tree import DecisionTreeClassifier

from poisonproof import certify_votes
from poisonproof.certificates.label_flips import NEVER
from poisonproof.exceptions import GuaranteeError
from poisonproof.features.exact import exact_rows
from poisonproof.members.closed_form import KernelRidgeClassifier
from poisonproof_research.methods.linear_labels import LinearLabelClassifier

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1500), slice(1500, None)


def classifier(**parameters: Any) -> LinearLabelClassifier:
    settings = {"n_partitions": 10, "classes": range(10), **parameters}
    return LinearLabelClassifier(KernelRidgeClassifier("cosine", alpha=0.1), **settings)


def test_the_radius_is_larger_than_theorem_2_for_the_same_votes() -> None:
    clf = classifier().fit(X[TRAIN], Y[TRAIN])
    certificates = clf.certify(X[TEST])
    plain = certify_votes(clf.votes(X[TEST]), 10, "label_flip")
    assert np.array_equal(certificates.labels, plain.labels)
    assert (certificates.radius >= plain.radius).all()
    assert np.median(certificates.radius) >= 1.5 * np.median(plain.radius)


def test_refits_on_the_cheapest_flips_change_nothing_within_the_radius() -> None:
    clf = classifier().fit(X[TRAIN], Y[TRAIN])
    certificates = clf.certify(X[TEST])
    rng = np.random.default_rng(0)
    for row in rng.choice(np.flatnonzero(certificates.radius > 0), 6, replace=False):
        asked = X[TEST][row : row + 1]
        flips = _cheapest_flips(clf, asked, certificates[row])
        radius, label = int(certificates.radius[row]), certificates.labels[row]
        assert len(flips) > radius
        poisoned = Y[TRAIN].copy()
        for position, other in flips[:radius]:
            poisoned[position] = other
        assert classifier().fit(X[TRAIN], poisoned).predict(asked)[0] == label
        for position, other in flips:
            poisoned[position] = other
        assert classifier().fit(X[TRAIN], poisoned).predict(asked)[0] != label


def _cheapest_flips(clf: Any, asked: Any, certificate: Any) -> list[tuple[int, int]]:
    """All flips that turn the members, the cheapest member first, to the runner-up."""
    label, rival = int(certificate.labels[0]), int(certificate.runner_up[0])
    ((votes, prices),) = clf._votes_and_prices(asked)
    block = _rows_by_member(clf)
    flips: list[tuple[int, int]] = []
    for member in np.argsort(prices[0, :, rival], kind="stable"):
        if votes[0, member] != label or prices[0, member, rival] >= NEVER:
            continue
        weights, y = clf._members[member][0], clf._members[member][1]
        own = weights.integers(exact_rows(asked, clf._rows.estimator.precision))[0]
        lower = own * ((y == label).astype(int) - (y == rival)) + np.abs(own)
        for place in np.argsort(-lower, kind="stable")[: prices[0, member, rival]]:
            flips.append((int(block[member][place]), rival if own[place] > 0 else label))
    return flips


def _rows_by_member(clf: Any) -> list[Any]:
    """Positions in the training set of every member's rows, found by their samples."""
    where = {row.tobytes(): index for index, row in enumerate(X[TRAIN])}
    found = []
    for member, _ in clf._members:
        samples = np.rint(member.rows.floats()).astype(X.dtype)
        found.append([where[np.ascontiguousarray(row).tobytes()] for row in samples])
    return found


def test_neither_labels_nor_row_order_reach_a_weight() -> None:
    rng = np.random.default_rng(1)
    order = rng.permutation(1500)
    first = classifier(features=PCA(20)).fit(X[TRAIN], Y[TRAIN])
    second = classifier(features=PCA(20)).fit(X[TRAIN][order], rng.permutation(Y[TRAIN]))
    asked = first._members[0][0].rows
    for (one, _), (other, _) in zip(first._members, second._members, strict=True):
        assert np.array_equal(one.integers(asked), other.integers(asked))


def test_repeated_samples_weigh_alike_so_their_labels_may_change_places() -> None:
    doubled, labels = np.repeat(X[:200], 3, axis=0), np.arange(600) % 10
    clf = classifier(n_partitions=4).fit(doubled, labels)
    swapped = classifier(n_partitions=4).fit(doubled, labels.reshape(200, 3)[:, ::-1].ravel())
    assert np.array_equal(clf.votes(X[TEST]), swapped.votes(X[TEST]))


def test_members_that_are_not_linear_in_their_labels_are_refused() -> None:
    with pytest.raises(GuaranteeError, match="linear in their labels"):
        LinearLabelClassifier(DecisionTreeClassifier()).fit(X[TRAIN], Y[TRAIN])


class Rounding(TransformerMixin, BaseEstimator):
    """Rounds the end of a long table otherwise than its beginning, as matrix products may."""

    def fit(self, rows: Any) -> Any:
        return self

    def transform(self, rows: Any) -> Any:
        return rows + 0.01 * (np.arange(len(rows)) % 2 * (len(rows) > 500))[:, None]


def test_copies_of_a_sample_count_alike_however_the_map_rounds_them() -> None:
    """Else it would matter which of them carries which label, and that is the order of the rows."""
    samples = np.repeat(X[:60], 10, axis=0)
    labels = np.random.default_rng(6).integers(0, 10, 600)
    order = np.random.default_rng(7).permutation(600)
    found = [
        classifier(features=Rounding()).fit(samples[at], labels[at]).certify(X[TEST])
        for at in (np.arange(600), order)
    ]
    assert np.array_equal(found[0].radius, found[1].radius)
    fitted = classifier(features=Rounding()).fit(samples, labels)
    assert all(len(np.unique(m.first)) == len(m.first) // 10 for m, _ in fitted._members)
