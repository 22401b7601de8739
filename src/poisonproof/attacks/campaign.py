"""Many random attacks with real refits, planned so that any one of them can be run again.

Trial t of a campaign is a function of the scenarios, the campaign's seed and t alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from poisonproof.attacks.random_rows import ATTACK_THREATS, Attack, RowAttacker
from poisonproof.attacks.trials import Damage, Reference
from poisonproof.estimators import DPAClassifier

__all__ = ["Campaign", "Scenario", "Trial", "standard_scenarios"]

AIMS = ("anywhere", "largest", "voters", "empty")
"""Where the rows go: at random, the largest partition, members that vote for the target's label,
partitions without rows."""


@dataclass(frozen=True)
class Scenario:
    """One classifier on one data set, with a training set that leaves some partitions empty."""

    data: str
    member: str
    classifier: Any
    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """One attack of a campaign and what it did.

    Attributes
    ----------
    number : int
        Position in the campaign.
    scenario : Scenario
        What was attacked.
    attack : Attack
        How.
    aim : str
        One of `AIMS`.
    target, radius : int
        The test row the attack was made for and its radius in the unit of the attack.
    n_jobs : int
        Workers of the refit.
    damage : Damage
        The outcome.
    """

    number: int
    scenario: Scenario
    attack: Attack
    aim: str
    target: int
    radius: int
    n_jobs: int
    damage: Damage

    @property
    def target_turned(self) -> bool:
        """Whether the attacked prediction changed; possible only beyond its radius."""
        return self.target in self.damage.turned


class Campaign:
    """A list of scenarios and the attacks on them.

    Parameters
    ----------
    scenarios : sequence of Scenario
        Attacked in turn.
    seed : int
        Decides every attack.

    Examples
    --------
    >>> campaign = Campaign(standard_scenarios()[-1:], seed=0)
    >>> [trial.damage.holds for trial in campaign.run(2)]
    [True, True]
    """

    def __init__(self, scenarios: Sequence[Scenario], seed: int) -> None:
        self.scenarios = list(scenarios)
        self.seed = seed
        self._references: dict[int, tuple[Reference, Any]] = {}

    def run(self, n_attacks: int) -> Iterator[Trial]:
        """Yield the first `n_attacks` trials."""
        return (self.trial(number) for number in range(n_attacks))

    def trial(self, number: int) -> Trial:
        """Attack, refit by `fit`, and compare.

        Odd rounds refit with two workers; the clean reference was fitted with one.
        """
        turn, which = divmod(number, len(self.scenarios))
        scenario = self.scenarios[which]
        kind = list(ATTACK_THREATS)[turn % len(ATTACK_THREATS)]
        n_jobs = 1 + turn // len(ATTACK_THREATS) % 2
        rng = np.random.default_rng([self.seed, number])
        reference, partitioner = self._reference(which)
        radii = reference.radius[ATTACK_THREATS[kind]]
        target = int(rng.choice(np.flatnonzero(radii >= min(1, radii.max()))))
        radius = int(radii[target])
        attacker = RowAttacker(
            scenario.X,
            scenario.y,
            partitioner,
            np.unique(scenario.y).tolist(),
            int(rng.integers(1 << 31)),
        )
        size = _size(radius, rng)
        aim = str(rng.choice(AIMS if kind in {"insert", "replace"} else AIMS[:-1]))
        if size > radius:
            aim = "voters"  # beyond the radius the attacker is free to win, so it tries its best
        attack = attacker.attack(
            kind,
            size,
            partitions=_partitions(aim, attacker, reference, target, rng),
            near=scenario.X_test[target] if aim == "voters" else None,
            label=reference.runner_up[target] if aim == "voters" else None,
        )
        poisoned = clone(scenario.classifier).set_params(n_jobs=n_jobs).fit(attack.X, attack.y)
        damage = reference.compare(poisoned, scenario.X_test, attack)
        return Trial(number, scenario, attack, aim, target, radius, n_jobs, damage)

    def _reference(self, which: int) -> tuple[Reference, Any]:
        if which not in self._references:
            scenario = self.scenarios[which]
            fitted = clone(scenario.classifier).set_params(n_jobs=1).fit(scenario.X, scenario.y)
            reference = Reference.of(fitted, scenario.X_test)
            self._references[which] = reference, fitted.partitioner_
        return self._references[which]


def standard_scenarios(others: Mapping[str, Any] | None = None) -> list[Scenario]:
    """Return three data sets that come with scikit-learn, each with four kinds of member.

    `others` are classifiers by name that become members, too.
    """
    members = {
        "tree": DecisionTreeClassifier(),
        "naive Bayes": GaussianNB(),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
        "neighbours": KNeighborsClassifier(1),
        **(others or {}),
    }
    loaders = {"digits": (load_digits, 20), "breast cancer": (load_breast_cancer, 16)}
    loaders["wine"] = (load_wine, 10)
    scenarios = []
    for data, (loader, k) in loaders.items():
        X, y = loader(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[: 3 * len(y) // 4], order[3 * len(y) // 4 :][:100]
        for member, estimator in members.items():
            classifier = DPAClassifier(estimator, k, classes=np.unique(y).tolist())
            kept = train[_all_but_two_partitions(X[train], classifier)]
            scenarios.append(Scenario(data, member, classifier, X[kept], y[kept], X[test]))
    return scenarios


def _all_but_two_partitions(X: NDArray[Any], classifier: DPAClassifier) -> NDArray[Any]:
    """Leave the last two partitions empty, so that attacks can be the first to fill them."""
    from poisonproof.partition import make_partitioner

    partitioner = make_partitioner(classifier.partitioner, classifier.n_partitions)
    return np.flatnonzero(partitioner.assign(X) < classifier.n_partitions - 2)


def _size(radius: int, rng: np.random.Generator) -> int:
    """Two thirds of the attacks have exactly the size of the radius; others less, or one more."""
    draw = rng.random()
    if draw < 2 / 3 or radius == 0:
        return radius
    return int(rng.integers(1, radius + 1)) if draw < 5 / 6 else radius + 1


def _partitions(
    aim: str, attacker: RowAttacker, reference: Reference, target: int, rng: np.random.Generator
) -> list[int] | None:
    if aim == "largest":
        return [int(np.argmax(attacker.sizes))]
    if aim == "empty":
        return [int(index) for index in np.flatnonzero(attacker.sizes == 0)]
    if aim == "voters":
        votes = reference.votes[target]
        winner = np.bincount(votes[votes >= 0]).argmax()
        return [int(index) for index in rng.permutation(np.flatnonzero(votes == winner))]
    return None
