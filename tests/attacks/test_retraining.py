"""Members that an attack does not reach are kept: votes equal those of training from scratch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.attacks import NearInsertions, NumberMaterial, RandomFlips, Victim, attack_study
from poisonproof.attacks.kinds import Poison
from poisonproof.attacks.retraining import PoisonedModel
from poisonproof.estimators import NeighborVoteClassifier
from poisonproof.exceptions import GuaranteeError, InvalidInputError

X, y = load_digits(return_X_y=True)
X, y, QUESTIONS = X[:700], y[:700], X[700:720]
GROUPS = np.array([f"u{i % 90}" for i in range(700)], dtype=object)


def poisoned_model(fitted: Any, poison: Poison, groups: Any = None) -> PoisonedModel:
    victim = Victim(NumberMaterial(X), y, fitted.classes_, fitted.partitioner_, groups)
    return PoisonedModel(fitted, victim, poison, QUESTIONS)


def flips(rng: np.random.Generator, groups: Any) -> Poison:
    rows = rng.permutation(700)[:150]
    return Poison(X[rows], (y[rows] + 1) % 10, rows, None if groups is None else groups[rows])


def insertions(rng: np.random.Generator, groups: Any) -> Poison:
    rows = np.clip(X[rng.integers(0, 700, 150)] + rng.integers(0, 2, (150, 64)), 0, 16)
    owners = None if groups is None else np.array([f"new {i}" for i in range(150)], dtype=object)
    return Poison(rows, rng.integers(0, 10, 150), None, owners)


@pytest.mark.parametrize(
    ("model", "groups", "poisons"),
    [
        (DPAClassifier(DecisionTreeClassifier(), 20, classes=range(10)), None, (flips, insertions)),
        (
            DPAClassifier(GaussianNB(), 20, partitioner="group", classes=range(10)),
            GROUPS,
            (flips, insertions),
        ),
        (SSDPAClassifier(GaussianNB(), PCA(9), 20, classes=range(10)), None, (flips,)),
        (SSDPAClassifier(None, None, 20, classes=range(10)), None, (flips,)),
    ],
    ids=["rows", "contributors", "learned features", "sorted samples"],
)
def test_keeping_members_equals_training_from_scratch(
    model: Any, groups: Any, poisons: tuple[Any, ...]
) -> None:
    fitted = clone(model).fit(X, y, groups=groups)
    for make in poisons:
        poison = make(np.random.default_rng(3), groups)
        poisoned = poisoned_model(fitted, poison, groups)
        for size in (100, 1, 7, 150, 8):
            X_now, y_now, owners = poison.apply(X, y, size, groups)
            scratch = clone(model).fit(X_now, y_now, groups=owners)
            np.testing.assert_array_equal(poisoned.votes(size), scratch.votes(QUESTIONS))
            poisoned.check_from_scratch(size)


def test_only_members_that_are_reached_train_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = DPAClassifier(GaussianNB(), 50, classes=range(10)).fit(X, y)
    poison = insertions(np.random.default_rng(0), None)
    places = fitted.partitioner_.assign(poison.X)
    trained: list[list[int]] = []
    train = DPAClassifier._train

    def counted(self: Any, data: Any, which: list[int]) -> Any:
        trained.append(which)
        return train(self, data, which)

    monkeypatch.setattr(DPAClassifier, "_train", counted)
    poisoned = poisoned_model(fitted, poison)
    poisoned.votes(10)
    poisoned.votes(11)
    poisoned.votes(10)
    assert trained == [sorted(set(places[:10].tolist())), [int(places[10])]]


class Gossip(GaussianNB):
    """A learner that breaks the law: its members know how often one was trained."""

    trained = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        Gossip.trained += 1
        return super().fit(X, (y + Gossip.trained) % 10, sample_weight)


def test_a_learner_that_breaks_the_law_is_found_out_by_training_from_scratch() -> None:
    model = DPAClassifier(Gossip(), 10, classes=range(10))
    with pytest.raises(GuaranteeError, match="not a function of its own partition"):
        attack_study(model, X, y, QUESTIONS, kinds=[NearInsertions()], n_targets=1, limit=3)


def test_a_fitted_model_is_attacked_as_it_is_and_only_with_its_own_rows() -> None:
    model = DPAClassifier(GaussianNB(), 10, classes=range(10))
    options: dict[str, Any] = {"kinds": [RandomFlips()], "n_targets": 2, "limit": 20}
    fitted = clone(model).fit(X, y)
    assert attack_study(fitted, X, y, QUESTIONS, **options) == attack_study(
        model, X, y, QUESTIONS, **options
    )
    with pytest.raises(InvalidInputError, match="not what the model was trained on"):
        attack_study(fitted, X[:-1], y[:-1], QUESTIONS, **options)


class Counting:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.total = self.done = 0

    def start(self, total: int, description: str) -> None:
        self.total = total

    def advance(self, amount: int = 1) -> None:
        self.done += amount

    def stop(self) -> None: ...


def test_the_bar_ends_where_it_said_also_with_fewer_targets_than_asked() -> None:
    bar = Counting()
    model = DPAClassifier(GaussianNB(), 10, classes=range(10))
    attack_study(
        *(model, X, y, QUESTIONS[:3]), kinds=[RandomFlips()], n_targets=8, limit=9, progress=bar
    )
    assert (bar.total, bar.done) == (6, 6)


def test_models_that_cannot_be_attacked_are_named() -> None:
    weighted = DPAClassifier(GaussianNB(), 10, classes=range(10))
    weighted.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(InvalidInputError, match="trained on weighted rows"):
        attack_study(weighted, X, y, QUESTIONS)
    with pytest.raises(InvalidInputError, match="got NeighborVoteClassifier"):
        attack_study(NeighborVoteClassifier(classes=range(10)), X, y, QUESTIONS)
