"""Real attacks on a protected and on an unprotected model of the same kind, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.attacks.kinds import ATTACK_KINDS, AttackKind
from poisonproof.attacks.poison import Target, Victim
from poisonproof.attacks.search import Trace, first_change, votes_to_turn
from poisonproof.certificates import Threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition import make_partitioner
from poisonproof.progress import Progress, Silent

__all__ = ["AttackStudy", "AttackedRow", "KindOutcome", "attack_study"]


@dataclass(frozen=True)
class AttackedRow:
    """What one kind of attack did to one prediction.

    Attributes
    ----------
    row : int
        Position in the test set.
    radius : int
        The certificate, in units of the attack.
    on_votes : int or None
        Members that must be turned in the worst case; one more than the radius where a unit
        reaches one member.
    protected, unprotected : Trace
        Sizes tried on the ensemble, and on one model of the same kind trained on all rows.
    """

    row: int
    radius: int
    on_votes: int | None
    protected: Trace
    unprotected: Trace


@dataclass(frozen=True)
class KindOutcome:
    """One kind of attack on all targets."""

    name: str
    title: str
    threat: Threat
    rows: tuple[AttackedRow, ...]

    @property
    def trials_within(self) -> tuple[int, int]:
        """Attacks of at most the certified size, and how many of them changed the prediction."""
        pairs = [row.protected.within(row.radius) for row in self.rows]
        return sum(tried for tried, _ in pairs), sum(changed for _, changed in pairs)

    @property
    def median_radius(self) -> int:
        """Median certificate of the targets, the upper one of two."""
        return sorted(row.radius for row in self.rows)[len(self.rows) // 2]

    def median_first(self, which: str) -> int | None:
        """Return the median first change of ``"protected"`` or ``"unprotected"``.

        None if that many targets never changed.
        """
        firsts = [getattr(row, which).first for row in self.rows]
        found = sorted(first for first in firsts if first is not None)
        middle = len(firsts) // 2
        return found[middle] if middle < len(found) else None


@dataclass(frozen=True)
class AttackStudy:
    """The outcome of all kinds of attack on one model.

    Attributes
    ----------
    n_members, n_rows : int
        Members of the protected model, and clean training rows.
    limit : int
        Largest attack tried.
    kinds : tuple of KindOutcome
        One per kind of attack.
    """

    n_members: int
    n_rows: int
    limit: int
    kinds: tuple[KindOutcome, ...]

    @property
    def trials_within(self) -> tuple[int, int]:
        """Attacks of at most the certified size over all kinds, and how many changed something."""
        pairs = [kind.trials_within for kind in self.kinds]
        return sum(tried for tried, _ in pairs), sum(changed for _, changed in pairs)

    def sentences(self) -> tuple[str, ...]:
        """Return the outcome in plain words."""
        tried, changed = self.trials_within
        lines = [
            f"{tried:,} attacks within the certified size, each with real retraining: "
            f"{changed:,} changed the prediction."
        ]
        for kind in self.kinds:
            first, bare = kind.median_first("protected"), kind.median_first("unprotected")
            lines.append(
                f"{kind.title}: half of the predictions are proved up to {kind.median_radius:,}, "
                f"and fell at {_or_beyond(first, self.limit)}; without protection at "
                f"{_or_beyond(bare, self.limit)}."
            )
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the study as JSON values."""
        return {
            "n_members": self.n_members,
            "n_rows": self.n_rows,
            "limit": self.limit,
            "kinds": [{**asdict(kind), "threat": kind.threat.to_dict()} for kind in self.kinds],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild a study from `to_dict`."""
        try:
            return cls(
                n_members=int(values["n_members"]),
                n_rows=int(values["n_rows"]),
                limit=int(values["limit"]),
                kinds=tuple(_kind(entry) for entry in values["kinds"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"This is not the result of poisonproof attack: {type(error).__name__}: {error}."
            ) from error


def attack_study(
    classifier: Any,
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    *,
    kinds: Sequence[AttackKind] | None = None,
    n_targets: int = 8,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> AttackStudy:
    """Attack predictions of a classifier until they change.

    Parameters
    ----------
    classifier : DPAClassifier or SSDPAClassifier
        Unfitted or fitted; it is cloned and trained anew for every attack.
    X : ndarray of shape (m, d)
        Clean training samples, numeric.
    y : ndarray of shape (m,)
        Their labels.
    X_test : ndarray of shape (n, d)
        Rows whose predictions are attacked; targets are spread over the certified radii.
    kinds : sequence of AttackKind, optional
        By default all that the classifier certifies.
    n_targets : int, default=8
        Test rows to attack with each kind.
    limit : int, optional
        Largest attack; half of the training rows by default.
    seed : int, default=0
        Decides the attackers' random choices.
    progress : Progress, optional
        Told about every finished target.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from poisonproof import DPAClassifier
    >>> from poisonproof.attacks import NearInsertions
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DPAClassifier(KNeighborsClassifier(1), n_partitions=9, classes=[0, 1, 2])
    >>> study = attack_study(model, X[::2], y[::2], X[1::2], kinds=[NearInsertions()], n_targets=2)
    >>> study.trials_within[1], study.kinds[0].median_first("unprotected")
    (0, 1)
    """
    if classifier.classes is None:
        raise GuaranteeError("Declare the label set of the model that is attacked: classes=[...].")
    if make_partitioner(classifier.partitioner, classifier.n_partitions).unit == "group":
        raise InvalidInputError(
            "These attacks count rows, but this model's certificates count contributors. Attack "
            "a model with partitioner='content'."
        )
    clean = clone(classifier).fit(X, y)
    chosen = list(kinds) if kinds is not None else _certified_kinds(clean)
    victim = Victim.of(clean, X, y)
    most = len(y) // 2 if limit is None else min(limit, len(y))
    listener = progress if progress is not None else Silent()
    listener.start(len(chosen) * n_targets, "Attacking")
    try:
        outcomes = tuple(
            _attack_with(kind, clean, victim, np.asarray(X_test), n_targets, most, seed, listener)
            for kind in chosen
        )
    finally:
        listener.stop()
    return AttackStudy(clean.n_partitions, len(y), most, outcomes)


def _attack_with(
    kind: AttackKind,
    clean: Any,
    victim: Victim,
    X_test: NDArray[Any],
    n_targets: int,
    limit: int,
    seed: int,
    progress: Progress,
) -> KindOutcome:
    asked = kind.asked(victim, X_test)
    certificates = clean.certify(asked, kind.threat)
    bare = clone(clean).set_params(n_partitions=1, partitioner="content")
    votes, bare_labels = clean.votes(asked), bare.fit(victim.X, victim.y).predict(asked)
    rows = []
    for row in _spread_targets(certificates.radius, n_targets):
        target = Target(
            row=row,
            sample=asked[row],
            label=certificates.labels[row],
            goal=certificates.runner_up[row],
            radius=int(certificates.radius[row]),
            votes=votes[row],
        )
        # Where the single model errs it may say the goal already; then it is to be put right.
        own, label = bare_labels[row], target.label
        aim = replace(
            target, label=own, goal=label if own == target.goal else target.goal, radius=0
        )
        goal = int(np.searchsorted(victim.classes, target.goal))
        rows.append(
            AttackedRow(
                row=row,
                radius=target.radius,
                on_votes=votes_to_turn(target.votes, len(victim.classes), goal),
                protected=_trace(kind, clean, victim, target, limit, seed),
                unprotected=_trace(kind, bare, victim, aim, limit, seed),
            )
        )
        progress.advance()
    return KindOutcome(kind.name, kind.title, certificates.threat, tuple(rows))


def _trace(
    kind: AttackKind, model: Any, victim: Victim, target: Target, limit: int, seed: int
) -> Trace:
    """Retrain `model` on growing attacks and watch its answer for the target."""
    poison = kind.poison(victim, target, limit, np.random.default_rng([seed, target.row]))

    def changes(size: int) -> bool:
        X, y = poison.apply(victim.X, victim.y, size)
        return bool(clone(model).fit(X, y).predict(target.sample[None, :])[0] != target.label)

    return first_change(changes, target.radius, len(poison))


def _certified_kinds(classifier: Any) -> list[AttackKind]:
    return [kind for kind in ATTACK_KINDS.values() if kind.threat in classifier.threats]


def _spread_targets(radius: NDArray[Any], count: int) -> list[int]:
    """Choose rows with a certificate, evenly from the least to the most robust."""
    order = np.argsort(radius, kind="stable")
    able = order[radius[order] > 0]
    able = able if len(able) else order
    places = np.linspace(0, len(able) - 1, min(count, len(able)))
    return [int(able[int(place)]) for place in np.rint(places)]


def _kind(entry: Mapping[str, Any]) -> KindOutcome:
    rows = tuple(
        AttackedRow(
            int(row["row"]),
            int(row["radius"]),
            None if row["on_votes"] is None else int(row["on_votes"]),
            *(
                Trace(tuple(map(int, row[which]["tried"])), tuple(map(bool, row[which]["changed"])))
                for which in ("protected", "unprotected")
            ),
        )
        for row in entry["rows"]
    )
    threat = Threat.from_dict(entry["threat"])
    return KindOutcome(str(entry["name"]), str(entry["title"]), threat, rows)


def _or_beyond(size: int | None, limit: int) -> str:
    return f"no size up to {limit:,}" if size is None else f"{size:,}"
