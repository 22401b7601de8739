"""Poisoned copies of a training set, made by an attacker who knows the partitioner.

Each attack has a size in the unit of one threat, and the partitions it touches, so that a real
refit can be held against the certificate: no prediction certified at that size may change, and no
member outside the touched partitions may change a bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

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

from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.exceptions import InvalidInputError

ATTACK_THREATS = {
    "insert": "insert_delete",
    "delete": "insert_delete",
    "duplicate": "insert_delete",
    "relabel": "label_flip",
    "replace": "replace",
    "reorder": "insert_delete",
}
"""Kind of attack to the threat whose unit counts it. Reordering costs nothing."""

_HUGE = 1e30
_BATCHES = 200


@dataclass(frozen=True)
class Attack:
    """A poisoned training set.

    Attributes
    ----------
    kind : str
        A key of `ATTACK_THREATS`.
    size : int
        Units of the kind's threat: rows inserted, deleted, relabelled or replaced.
    X : ndarray of shape (m', d)
        The poisoned samples.
    y : ndarray of shape (m',)
        Their labels.
    touched : ndarray of int
        Partitions that hold an inserted, deleted or changed row, before or after.
    """

    kind: str
    size: int
    X: NDArray[Any]
    y: NDArray[Any]
    touched: NDArray[np.intp]


class RowAttacker:
    """Attacks one training set at random, or where it is told to.

    Parameters
    ----------
    X : ndarray of shape (m, d)
        Clean samples, numeric.
    y : ndarray of shape (m,)
        Clean labels.
    partitioner : partitioner
        Its ``assign`` tells which partition a row falls into; attackers know it.
    classes : sequence
        The labels an inserted row may carry.
    seed : int
        Every attack is a function of the training set, the seed and the attacks made before.
    whole : bool, default=False
        Insert rows of whole numbers within the data's range only, as pixels are.

    Examples
    --------
    >>> import numpy as np
    >>> from poisonproof.partition import ContentHash
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> attacker = RowAttacker(X, y, ContentHash(n_partitions=4), classes=[0, 1], seed=0)
    >>> attack = attacker.attack("insert", 3, partitions=[2])
    >>> attack.X.shape, attack.touched
    ((23, 2), array([2]))
    """

    def __init__(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        partitioner: Any,
        classes: Sequence[Any],
        seed: int,
        *,
        whole: bool = False,
    ) -> None:
        self.X, self.y = np.asarray(X), np.asarray(y)
        self.partitioner = partitioner
        self.classes = np.asarray(classes)
        self.assignment = np.asarray(partitioner.assign(self.X))
        self.sizes = np.bincount(self.assignment, minlength=partitioner.n_partitions)
        self.whole = whole
        self._rng = np.random.default_rng(seed)

    def attack(
        self,
        kind: str,
        size: int,
        *,
        partitions: Sequence[int] | None = None,
        near: NDArray[Any] | None = None,
        label: Any = None,
    ) -> Attack:
        """Make one attack.

        Parameters
        ----------
        kind : {"insert", "delete", "duplicate", "relabel", "replace", "reorder"}
            What happens to the rows. In half of the attacks the rows are shuffled as well.
        size : int
            Units of attack; fewer if the aimed partitions hold fewer rows to delete or relabel.
        partitions : sequence of int, optional
            Where the rows come from and go to, in turn; anywhere by default.
        near : ndarray of shape (d,), optional
            New rows look like this sample.
        label : optional
            The label of new and relabelled rows; at random by default.

        Returns
        -------
        Attack
        """
        if kind not in ATTACK_THREATS:
            raise InvalidInputError(
                f"The kind of an attack is one of {', '.join(ATTACK_THREATS)}. Got {kind!r}."
            )
        X, y, pick, new = self._poison(kind, size, partitions, near, label)
        if kind == "reorder" or self._rng.random() < 0.5:
            order = self._rng.permutation(len(y))
            X, y = X[order], y[order]
        touched = self.assignment[pick]
        if len(new):
            touched = np.append(touched, self.partitioner.assign(new))
        return Attack(kind, max(len(pick), len(new)), X, y, np.unique(touched).astype(np.intp))

    def _poison(
        self,
        kind: str,
        size: int,
        partitions: Sequence[int] | None,
        near: NDArray[Any] | None,
        label: Any,
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.intp], NDArray[Any]]:
        """Return poisoned samples and labels, the clean rows that were hit, and the new rows."""
        X, y, none = self.X, self.y, self.X[:0]
        if kind == "reorder":
            return X, y, np.empty(0, np.intp), none
        if kind == "insert":
            new = self._new_rows(size, partitions, near)
            labels = np.append(y, self._labels(size, label))
            return np.concatenate([X, new]), labels, np.empty(0, np.intp), new
        pick = self._pick(size, partitions, repeat=kind == "duplicate")
        if kind == "replace" and len(pick) == 0:
            pick = self._pick(size, None, repeat=False)  # empty partitions: rows from elsewhere
        if kind == "duplicate":
            return np.concatenate([X, X[pick]]), np.append(y, y[pick]), pick, none
        if kind == "delete":
            return np.delete(X, pick, axis=0), np.delete(y, pick), pick, none
        labels = y.copy()
        if kind == "relabel":
            labels[pick] = self._other_labels(y[pick], label)
            return X, labels, pick, none
        # The new rows go on where the old ones end, so that a replacement touches two partitions.
        onward = None if partitions is None else np.roll(partitions, -len(pick)).tolist()
        new = self._new_rows(len(pick), onward, near)
        labels[pick] = self._labels(len(pick), label)
        replaced = X.astype(np.result_type(X, new))
        replaced[pick] = new
        return replaced, labels, pick, new

    def _pick(self, size: int, partitions: Sequence[int] | None, *, repeat: bool) -> NDArray[Any]:
        """Choose clean rows, one of each aimed partition in turn."""
        if partitions is None:
            rows = self._rng.permutation(len(self.y))
        else:
            shuffled = [
                self._rng.permutation(np.flatnonzero(self.assignment == index))
                for index in dict.fromkeys(partitions)
            ]
            longest = max((len(rows) for rows in shuffled), default=0)
            rows = np.array(
                [rows[turn] for turn in range(longest) for rows in shuffled if turn < len(rows)],
                dtype=np.intp,
            )
        if repeat and 0 < len(rows) < size:
            rows = np.resize(rows, size)
        return rows[:size]

    def _labels(self, size: int, label: Any) -> NDArray[Any]:
        if label is not None:
            return np.full(size, label, dtype=self.y.dtype)
        return self._rng.choice(self.classes, size)

    def _other_labels(self, labels: NDArray[Any], label: Any) -> NDArray[Any]:
        position = np.searchsorted(np.sort(self.classes), labels)
        shift = self._rng.integers(1, len(self.classes), len(labels))
        other = np.sort(self.classes)[(position + shift) % len(self.classes)]
        chosen: NDArray[Any] = np.where(labels == label, other, label)
        return other if label is None else chosen

    def _new_rows(
        self, size: int, partitions: Sequence[int] | None, near: NDArray[Any] | None
    ) -> NDArray[Any]:
        if partitions is None or not size:
            return self._candidates(size, near)
        wanted = np.resize(np.asarray(partitions), size)
        found: dict[int, list[NDArray[Any]]] = {int(index): [] for index in wanted}
        needed = {int(index): int((wanted == index).sum()) for index in wanted}
        for _ in range(_BATCHES):
            candidates = self._candidates(4 * len(self.sizes), near)
            for row, index in zip(candidates, self.partitioner.assign(candidates), strict=True):
                if int(index) in found:
                    found[int(index)].append(row)
            if all(len(found[index]) >= needed[index] for index in needed):
                return np.stack([found[int(index)].pop() for index in wanted])
        raise InvalidInputError(f"no rows were found that fall into the partitions {partitions}.")

    def _candidates(self, size: int, near: NDArray[Any] | None) -> NDArray[Any]:
        """Draw rows: near a sample, integers near it, uniform in the data's range, or extreme."""
        low, high = self.X.min(axis=0), self.X.max(axis=0)
        start = self.X[self._rng.integers(len(self.X), size=size)] if near is None else near
        shape = (size, self.X.shape[1])
        close = start + self._rng.normal(0, 0.1 if self.whole else 1e-3, shape) * (high - low + 1)
        uniform = self._rng.uniform(low, high, shape)
        style = self._rng.integers(0, 4 if near is None else 2, size)[:, None]
        rows = np.where(style == 1, np.rint(close + self._rng.normal(0, 0.5, shape)), close)
        rows = np.where(style == 2, uniform, rows)
        if self.whole:
            return np.clip(np.rint(rows), low, high)
        extreme = self._rng.random(shape) < 0.05
        return np.where((style == 3) & extreme, _HUGE, rows)


# Holding a refit on poisoned rows against what was certified before.


@dataclass(frozen=True)
class Damage:
    """What one attack did.

    Attributes
    ----------
    broken : ndarray of int
        Test rows whose prediction was certified at the attack's size and changed. Must be empty.
    leaked : ndarray of int
        Members outside the touched partitions that changed. Must be empty.
    certified : int
        Test rows that were certified at the attack's size.
    turned : ndarray of int
        Test rows whose prediction changed, certified or not.
    changed : int
        Members that changed.
    """

    broken: NDArray[np.intp]
    leaked: NDArray[np.intp]
    certified: int
    turned: NDArray[np.intp]
    changed: int

    @property
    def holds(self) -> bool:
        """Whether every certificate held and every untouched member kept its bits."""
        return len(self.broken) == 0 and len(self.leaked) == 0


@dataclass(frozen=True)
class Reference:
    """A classifier fitted on clean rows, remembered by everything an attack could change.

    Attributes
    ----------
    digests : tuple of str
        One per member.
    votes : ndarray of shape (n, k)
        On the test rows.
    labels, runner_up : ndarray of shape (n,)
        Predictions, and the labels closest behind.
    radius : dict of str to ndarray of shape (n,)
        Threat name to certified radii, for every threat the classifier certifies.
    """

    digests: tuple[str, ...]
    votes: NDArray[Any]
    labels: NDArray[Any]
    runner_up: NDArray[Any]
    radius: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, classifier: Any, X_test: Any) -> Self:
        """Remember a fitted classifier."""
        certificates = {name: classifier.certify(X_test, name) for name in classifier.threats}
        first = certificates[classifier.threats[0]]
        return cls(
            tuple(classifier.ensemble_.digests()),
            classifier.votes(X_test),
            first.labels,
            first.runner_up,
            {name: certificate.radius for name, certificate in certificates.items()},
        )

    def compare(self, classifier: Any, X_test: Any, attack: Attack) -> Damage:
        """Compare with the same classifier fitted on the attack's rows.

        Parameters
        ----------
        classifier : classifier
            Fitted on ``attack.X`` and ``attack.y``.
        X_test : array of shape (n, d)
            The test rows of this reference.
        attack : Attack
            What was done to the training set.
        """
        votes = classifier.votes(X_test)
        labels = classifier.predict(X_test)
        other_bits = np.array(classifier.ensemble_.digests()) != np.array(self.digests)
        changed = other_bits | (votes != self.votes).any(axis=0)
        certified = self.radius[ATTACK_THREATS[attack.kind]] >= attack.size
        turned = labels != self.labels
        return Damage(
            broken=np.flatnonzero(turned & certified),
            leaked=np.setdiff1d(np.flatnonzero(changed), attack.touched),
            certified=int(certified.sum()),
            turned=np.flatnonzero(turned),
            changed=int(changed.sum()),
        )


# Many random attacks with real refits, planned so that any one of them can be run again.
#
# Trial t of a campaign is a function of the scenarios, the campaign's seed and t alone.

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
    from poisonproof.partition.contributors import make_partitioner

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
