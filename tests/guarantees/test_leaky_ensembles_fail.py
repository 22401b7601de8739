"""The test of the tests: ensembles that leak are caught by the checks the library passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.partition import ContentHash
from tests.guarantees.campaign import Reference, RowAttacker

from .checks import Rows, assert_attack_stays_local, assert_order_does_not_matter
from .data import data
from .leaky import (
    FoundClasses,
    GlobalScaler,
    OneStream,
    PaddedNetwork,
    RowNumberPartitions,
    ScalerAfterPartitioning,
)

DIGITS = data("digits")

LEAKS: dict[str, Callable[[], Any]] = {
    "global-scaler": lambda: GlobalScaler(KNeighborsClassifier(1), 20, classes=range(10)),
    "global-scaler-late": lambda: ScalerAfterPartitioning(GaussianNB(), 20, classes=range(10)),
    "padding": lambda: PaddedNetwork(20),
    "stream-by-row-count": lambda: OneStream(RandomForestClassifier(3), 20, classes=range(10)),
    "row-numbers": lambda: RowNumberPartitions(GaussianNB(), 20, classes=range(10)),
}


def insertion(seed: int = 0) -> Any:
    attacker = RowAttacker(DIGITS.X, DIGITS.y, ContentHash(n_partitions=20), DIGITS.classes, seed)
    return attacker.attack("insert", 9, partitions=[int(np.argmax(attacker.sizes))])


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_caught_by_an_insertion(leak: str) -> None:
    make = LEAKS[leak]
    clean = make().fit(DIGITS.X, DIGITS.y)
    with pytest.raises(AssertionError, match="were touched"):
        assert_attack_stays_local(make, clean, DIGITS.X_test, insertion())


@pytest.mark.parametrize("leak", ["row-numbers"])
def test_a_leak_is_caught_by_reordering(leak: str) -> None:
    with pytest.raises(AssertionError, match="none may"):
        assert_order_does_not_matter(LEAKS[leak], Rows(DIGITS.X, DIGITS.y), DIGITS.X_test, seed=0)


def test_an_undeclared_label_set_is_caught_when_a_class_disappears() -> None:
    """Naive Bayes members do not care; the indices of their votes do."""
    keep = (DIGITS.y != 0) | (np.arange(len(DIGITS.y)) == int(np.argmin(DIGITS.y)))
    X, y = DIGITS.X[keep], DIGITS.y[keep]
    make: Callable[[], Any] = lambda: FoundClasses(GaussianNB(), 20)  # noqa: E731
    clean = make().fit(X, y)
    attacker = RowAttacker(X, y, ContentHash(n_partitions=20), range(10), 0)
    row = int(np.argmin(y))
    attack = attacker.attack("delete", 1, partitions=[int(attacker.assignment[row])])
    gone = type(attack)("delete", 1, np.delete(X, row, 0), np.delete(y, row), attack.touched)
    with pytest.raises(AssertionError, match="were touched"):
        assert_attack_stays_local(make, clean, DIGITS.X_test, gone)


def test_the_padded_network_is_caught_by_padding_alone() -> None:
    """Without growth of the longest partition it looks sound: toy attacks miss this leak."""
    make = LEAKS["padding"]
    clean = make().fit(DIGITS.X, DIGITS.y)
    attacker = RowAttacker(DIGITS.X, DIGITS.y, ContentHash(n_partitions=20), DIGITS.classes, seed=0)
    small = attacker.attack("insert", 1, partitions=[int(np.argmin(attacker.sizes))])
    assert_attack_stays_local(make, clean, DIGITS.X_test, small)


def test_the_campaign_of_attacks_catches_a_global_scaler() -> None:
    make = LEAKS["global-scaler"]
    clean = make().fit(DIGITS.X, DIGITS.y)
    attack = insertion(seed=1)
    damage = Reference.of(clean, DIGITS.X_test).compare(
        make().fit(attack.X, attack.y), DIGITS.X_test, attack
    )
    assert not damage.holds
    assert len(damage.leaked) > 10


@pytest.mark.parametrize(
    "estimator", [DecisionTreeClassifier(), LogisticRegression(max_iter=9)], ids=str
)
def test_the_same_checks_pass_for_the_library(estimator: Any) -> None:
    def make() -> DPAClassifier:
        return DPAClassifier(estimator, 20, classes=range(10))

    clean = make().fit(DIGITS.X, DIGITS.y)
    assert_attack_stays_local(make, clean, DIGITS.X_test, insertion())
    assert_order_does_not_matter(make, Rows(DIGITS.X, DIGITS.y), DIGITS.X_test, seed=0)
