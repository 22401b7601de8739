"""Certified accuracy, medians and base accuracy against plain counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poisonproof.certificates import certify_votes
from poisonproof.evaluation import (
    base_accuracy,
    certified_accuracy,
    clean_accuracy,
    median_radius,
    protected_share,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError, UnknownLabelError


@st.composite
def voted_rows(draw):
    n, k, n_classes = draw(st.integers(1, 40)), draw(st.integers(1, 30)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y = rng.integers(0, n_classes, n)
    knows = rng.random((n, k)) < rng.random((n, 1))
    return np.where(knows, y[:, None], rng.integers(-1, n_classes, (n, k))), y, n_classes


@settings(deadline=None)
@given(voted_rows())
def test_every_measure_equals_a_plain_count_over_rows(case):
    votes, y, n_classes = case
    certificates = certify_votes(votes, n_classes)
    pairs = list(zip(certificates.labels, certificates.radius, y, strict=True))
    sizes = range(votes.shape[1] + 2)
    safe = [
        sum(label == true and radius >= size for label, radius, true in pairs) for size in sizes
    ]
    assert certified_accuracy(certificates, y, sizes).tolist() == [s / len(y) for s in safe]
    assert clean_accuracy(certificates, y) == np.mean(certificates.labels == y)
    halves = [size for size in sizes if 2 * safe[size] >= len(y)]
    assert median_radius(certificates, y) == max(halves, default=None)
    assert base_accuracy(certificates, y) == pytest.approx(
        np.mean([np.mean(member == y) for member in votes.T])
    )
    assert protected_share(certificates, 1) == np.mean(certificates.radius >= 1)


def test_the_worked_example_of_theorem_1():
    votes = np.array([[0] * 5 + [1] * 2, [1] * 5 + [2] * 2, [0] * 3 + [1] * 3 + [-1]])
    certificates = certify_votes(votes, 3)
    np.testing.assert_allclose(
        certified_accuracy(certificates, [0, 1, 1], [0, 1, 2]), [2 / 3, 2 / 3, 0]
    )
    assert median_radius(certificates, [0, 1, 1]) == 1


@pytest.mark.parametrize(("right", "expected"), [(2, 1), (1, None)])
def test_exactly_half_of_the_rows_is_enough_and_less_is_not(right, expected):
    certificates = certify_votes(np.zeros((4, 3), int), 2)
    y = [0] * right + [1] * (4 - right)
    assert median_radius(certificates, y) == expected


def test_class_values_are_compared_as_values():
    certificates = certify_votes([[0, 0, 0], [1, 1, 1]], 2)
    named = certificates.with_classes(["ham", "spam"])
    for y in (["ham", "spam"], np.array(["ham", "spam"]), np.array(["ham", "spam"], dtype=object)):
        assert clean_accuracy(named, y) == 1.0
        assert base_accuracy(named, y) == 1.0
    assert clean_accuracy(certificates.with_classes([10, 20]), [10.0, 10.0]) == 0.5


def test_a_pandas_series_of_labels_is_accepted():
    pd = pytest.importorskip("pandas")
    named = certify_votes([[0, 0, 0], [1, 1, 1]], 2).with_classes(["ham", "spam"])
    assert clean_accuracy(named, pd.Series(["ham", "ham"], index=[5, 9])) == 0.5


def test_sizes_keep_their_shape():
    certificates = certify_votes([[0, 0, 0]], 2)
    assert certified_accuracy(certificates, [0], 1).shape == ()
    assert certified_accuracy(certificates, [0], []).shape == (0,)
    assert certified_accuracy(certificates, [0], [[0, 1], [2, 3]]).shape == (2, 2)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        ([0], InvalidInputError, r"one label per certificate \(2\)\. Got 1"),
        ([[0], [1]], InvalidInputError, "one dimension"),
        ([0, 2], UnknownLabelError, r"y_true\[1\] is 2.*2 classes: 0, 1"),
        ([-1, 0], UnknownLabelError, r"y_true\[0\] is -1"),
        (["0", "1"], UnknownLabelError, r"y_true\[0\] is '0'"),
        ([0.5, 1], UnknownLabelError, r"y_true\[0\] is 0\.5"),
        ([0, None], UnknownLabelError, r"y_true\[1\] is None"),
    ],
)
def test_true_labels_that_do_not_fit_are_refused_by_name(y, error, message):
    certificates = certify_votes([[0, 0], [1, 1]], 2)
    for measure in (clean_accuracy, median_radius, base_accuracy):
        with pytest.raises(error, match=message):
            measure(certificates, y)


def test_a_label_outside_named_classes_lists_the_classes():
    named = certify_votes([[0, 0], [1, 1]], 2).with_classes(["ham", "spam"])
    with pytest.raises(UnknownLabelError, match=r"y_true\[1\] is 'eggs'.*'ham', 'spam'"):
        clean_accuracy(named, ["ham", "eggs"])


@pytest.mark.parametrize("sizes", [[0, -1], [0.5], [1.0], ["1"], [True]])
def test_attack_sizes_are_whole_and_not_negative(sizes):
    certificates = certify_votes([[0, 0]], 2)
    with pytest.raises(InvalidInputError, match="Attack sizes"):
        certified_accuracy(certificates, [0], sizes)
    with pytest.raises(InvalidInputError, match="Attack sizes"):
        protected_share(certificates, sizes)


def test_no_rows_have_no_accuracy():
    certificates = certify_votes(np.empty((0, 2), int), 2)
    for measure in (clean_accuracy, median_radius, base_accuracy):
        with pytest.raises(InvalidInputError, match="no rows"):
            measure(certificates, [])
    with pytest.raises(InvalidInputError, match="no rows"):
        protected_share(certificates, 0)


def test_targeted_certificates_are_never_reported_as_certified_accuracy():
    votes = [[0, 0, 0, 0, 1, 1, 1, 2], [2, 2, 2, 2, 2, 2, 2, 2]]
    certificates = certify_votes(votes, 3, target=2)
    for measure in (clean_accuracy, median_radius):
        with pytest.raises(GuaranteeError, match="protected_share"):
            measure(certificates, [0, 2])
    np.testing.assert_array_equal(protected_share(certificates, [0, 2, 3]), [0.5, 0.5, 0])
