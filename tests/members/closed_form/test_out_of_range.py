"""Parameters, weights and cells beyond what the arithmetic holds: said as what they are."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof import DPAClassifier
from poisonproof.exceptions import InvalidInputError, InvalidRowsError, MemberWarning
from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    RidgeClassifier,
    ScaledKernelClassifier,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4))
y = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("gamma", [1e39, 1e-50, 1e-320])
def test_a_gamma_beyond_single_precision_is_refused(gamma: float) -> None:
    with pytest.raises(InvalidInputError, match="gamma must lie between 1e-30 and 1e\\+30"):
        ScaledKernelClassifier(gamma=gamma).fit(X, y)


def test_a_kernel_parameter_that_is_no_number_is_named() -> None:
    with pytest.raises(InvalidInputError, match="gamma must be"):
        KernelRidgeClassifier(gamma="wide").fit(X, y)


@pytest.mark.parametrize("weight", [1e-310, 5e-324, 1e308, -1.0])
def test_a_weight_that_vanishes_or_overflows_silences_its_member_and_is_named(
    weight: float,
) -> None:
    weights = np.ones(len(y))
    weights[3] = weight
    model = DPAClassifier(RidgeClassifier(), 10, classes=[0, 1])
    with pytest.warns(MemberWarning, match="sample_weight must be 0 or lie between 1e-100"):
        model.fit(X, y, sample_weight=weights)
    assert len(model.failures_) == 1
    (reason,) = model.failures_.values()
    assert f"is {weight:g} in one row" in reason


def test_weights_at_the_ends_of_the_range_give_the_labels_of_equal_weights() -> None:
    plain = RidgeClassifier().fit(X, y).predict(X)
    for weight in (1e-100, 1e100):
        weighted = RidgeClassifier(weight).fit(X, y, sample_weight=np.full(len(y), weight))
        np.testing.assert_array_equal(weighted.predict(X), plain)


def test_a_huge_cell_is_called_too_large() -> None:
    cells = X.copy()
    cells[7, 2] = 1e308
    model = DPAClassifier(RidgeClassifier(), 10, classes=[0, 1])
    with pytest.warns(MemberWarning, match="products of them overflow"):
        model.fit(cells, y)


def test_infinity_is_not_answered_with_advice_on_missing_values() -> None:
    cells = X.copy()
    cells[7, 2] = np.inf
    with pytest.raises(InvalidRowsError, match=r"cannot take\. Remove them, or bound their values"):
        DPAClassifier(n_partitions=5, classes=[0, 1]).fit(cells, y)
