"""Attacks on a protected and on an unprotected model of the same kind, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.attacks.kinds import ATTACK_KINDS, AttackKind, Target, Victim
from poisonproof.attacks.materials import Material, TextMaterial, make_material
from poisonproof.attacks.retraining import PoisonedModel, Trace, first_change
from poisonproof.certificates.threats import Threat, unit_noun
from poisonproof.estimators.dpa import PartitionAggregation
from poisonproof.estimators.grid import GridClassifier
from poisonproof.estimators.updating import require_same_spec, training_set
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition.contributors import GroupPartitioner, make_partitioner
from poisonproof.progress import Progress, reporting


@dataclass(frozen=True)
class AttackedRow:
    """The effect of one kind of attack on one prediction.

    Attributes
    ----------
    row : int
        Position in the test set.
    radius : int
        The certificate, in units of the attack.
    protected, unprotected : Trace
        Sizes tried on the ensemble, and on one model of the same kind trained on all rows.
    """

    row: int
    radius: int
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

    def fell_at(self, limit: int) -> tuple[str, str]:
        """Return the median first changes, protected and unprotected, as text."""
        firsts = (self.median_first(which) for which in ("protected", "unprotected"))
        held, bare = (f"> {limit:,}" if first is None else f"{first:,}" for first in firsts)
        return held, bare


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
            members, rows, limit = (int(values[name]) for name in ("n_members", "n_rows", "limit"))
            return cls(members, rows, limit, tuple(map(_kind, values["kinds"])))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"This is not the result of poisonproof attack: {type(error).__name__}: {error}."
            ) from error


def _kind(entry: Mapping[str, Any]) -> KindOutcome:
    rows = tuple(
        AttackedRow(
            int(row["row"]),
            int(row["radius"]),
            _trace(row["protected"]),
            _trace(row["unprotected"]),
        )
        for row in entry["rows"]
    )
    threat = Threat.from_dict(entry["threat"])
    return KindOutcome(str(entry["name"]), str(entry["title"]), threat, rows)


def _trace(entry: Mapping[str, Any]) -> Trace:
    return Trace(tuple(map(int, entry["tried"])), tuple(map(bool, entry["changed"])))


WEIGHTED = (
    "this model was trained on weighted rows, but attacks count rows. Attack a model that was "
    "trained without weights."
)


def attack_study(
    classifier: Any,
    X: Any,
    y: Any,
    X_test: Any,
    *,
    groups: Any = None,
    material: Material | None = None,
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
        Unfitted, or fitted on these very rows: then this model is attacked, bit for bit.
    X : array of shape (m, d), or m texts
        Clean training rows.
    y : array of shape (m,)
        Their labels.
    X_test : array of shape (n, d), or n texts
        Rows whose predictions are attacked; targets are spread over the certified radii.
    groups : array of shape (m,), optional
        Who contributed each row (or its source or time), for a partitioner that reads them:
        attacks then count contributors, entities, sources or time blocks.
    material : Material, optional
        What `X` and `X_test` are made of, if they are neither plain numbers nor texts:
        `CellMaterial` for the cells of a table, `NumberMaterial` for images.
    kinds : sequence of AttackKind, optional
        By default all that the classifier certifies.
    n_targets : int, default=8
        Test rows to attack with each kind.
    limit : int, optional
        Largest attack; half of the training rows (contributors) by default.
    seed : int, default=0
        Decides the attackers' random choices.
    progress : Progress, optional
        Advances with every attacked prediction of the protected and the unprotected model.

    Notes
    -----
    An attack trains again the members whose partitions it changes; the others are kept, since they
    would not change. For every kind, one attack of the certified size is trained from scratch as
    well, and every member's vote compared.

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
    if not isinstance(classifier, PartitionAggregation) or isinstance(classifier, GridClassifier):
        raise InvalidInputError(
            "attack_study attacks models of DPAClassifier and SSDPAClassifier, got "
            f"{type(classifier).__name__}."
        )
    classifier = classifier.without_schema()
    if classifier.classes is None:
        raise GuaranteeError("Declare the label set of the model that is attacked: classes=[...].")
    rule, owners = make_partitioner(classifier.partitioner, classifier.n_partitions), None
    if isinstance(rule, GroupPartitioner):
        if groups is None:
            raise InvalidInputError(
                f"This model's certificates count {unit_noun(rule.unit)}: say who contributed each "
                "row, groups=[...]."
            )
        owners = np.fromiter(rule.units(groups), dtype=object, count=len(groups))
    material = make_material(X) if material is None else material
    samples, labels = material.encode(material.rows), np.asarray(y)
    clean = _fitted(classifier, samples, labels, owners)
    bare = clone(classifier).set_params(n_partitions=1, partitioner="content").fit(samples, labels)
    for model in (clean, bare):
        if n_lost := len(labels) - model.rows_.whole().n_rows:
            raise InvalidInputError(
                f"{n_lost} of {len(labels)} training rows were left out because members cannot "
                "take them. Leave them out before attacking: attacks count rows."
            )
    victim = Victim(material, labels, clean.classes_, clean.partitioner_, owners)
    rows = np.asarray(X_test, dtype=object if isinstance(material, TextMaterial) else None)
    limit = victim.n_units // 2 if limit is None else min(limit, victim.n_units)
    kinds = kinds or [kind for kind in ATTACK_KINDS.values() if kind.threat in clean.threats]
    attacks = [_Attack(kind, victim, clean, bare, rows, n_targets, limit, seed) for kind in kinds]
    with reporting(progress, 2 * sum(len(one.targets) for one in attacks), "Attacking") as listener:
        outcomes = tuple(one.outcome(listener) for one in attacks)
    return AttackStudy(clean.partitioner_.k, len(labels), limit, outcomes)


def _fitted(classifier: Any, samples: Any, y: Any, owners: Any) -> Any:
    """Return the classifier on the clean rows: as it was fitted on them, or fitted now."""
    if not hasattr(classifier, "ensemble_"):
        return clone(classifier).fit(samples, y, groups=owners)
    require_same_spec(classifier)
    if classifier.rows_ is not None and classifier.rows_.weighted:
        raise InvalidInputError(WEIGHTED)
    known = copy(classifier)
    known.rows_ = training_set(classifier, {"X": samples, "y": y, "groups": owners})
    return known


class _Attack:
    """One kind of attack on all its targets."""

    def __init__(
        self,
        kind: AttackKind,
        victim: Victim,
        clean: Any,
        bare: Any,
        test_rows: NDArray[Any],
        n_targets: int,
        limit: int,
        seed: int,
    ) -> None:
        self.kind, self.victim, self.clean, self.bare = kind, victim, clean, bare
        self.limit, self.seed = limit, seed
        rows = kind.predicted(victim, test_rows)
        samples = victim.material.encode(rows)
        certificates = clean.certify(samples, kind.threat)
        self.threat = certificates.threat
        chosen = _spread_targets(certificates.radius, n_targets)
        self.samples = samples[chosen]
        self.targets = [
            Target(
                row=row,
                sample=rows[row],
                label=certificates.labels[row],
                goal=certificates.runner_up[row],
                radius=int(certificates.radius[row]),
                votes=votes,
            )
            for row, votes in zip(chosen, clean.votes(self.samples), strict=True)
        ]

    def outcome(self, progress: Progress) -> KindOutcome:
        """Attack all predictions of both models."""
        protected = self._traces(self.clean, self.targets, progress)
        others = []
        for target, own in zip(self.targets, self.bare.predict(self.samples), strict=True):
            # Where the single model errs it may say the goal already; then it is to be put right.
            goal = target.label if own == target.goal else target.goal
            others.append(replace(target, label=own, goal=goal, radius=0))
        unprotected = self._traces(self.bare, others, progress)
        title = self.kind.title
        if self.threat.by_group:
            title = title.replace("row", self.threat.noun(1))
        traces = zip(self.targets, protected, unprotected, strict=True)
        rows = tuple(AttackedRow(target.row, target.radius, *both) for target, *both in traces)
        return KindOutcome(self.kind.name, title, self.threat, rows)

    def _traces(
        self, classifier: Any, targets: Sequence[Target], progress: Progress
    ) -> list[Trace]:
        """Try growing attacks on each target; targets with the same aim share the poison."""
        turns: dict[tuple[int, ...], list[int]] = {}
        for turn, target in enumerate(targets):
            turns.setdefault(self.kind.aim(self.victim, target), []).append(turn)
        traces: dict[int, Trace] = {}
        for aim, sharing in turns.items():
            rng = np.random.default_rng([self.seed, *aim])
            poison = self.kind.poison(self.victim, targets[sharing[0]], self.limit, rng)
            poisoned = PoisonedModel(classifier, self.victim, poison, self.samples)
            for turn in sharing:
                label, radius = targets[turn].label, targets[turn].radius
                changes = partial(poisoned.changes, turn, label)
                traces[turn] = first_change(changes, radius, len(poison))
                progress.advance()
        if (
            classifier is self.clean and targets
        ):  # hold the last attack of the certified size against scratch
            poisoned.check_from_scratch(max(1, min(radius, len(poison))))
        return [traces[turn] for turn in range(len(targets))]


def _spread_targets(radius: NDArray[Any], count: int) -> list[int]:
    """Choose rows with a certificate, evenly from the least to the most robust."""
    order = np.argsort(radius, kind="stable")
    able = order[radius[order] > 0]
    able = able if len(able) else order
    places = np.linspace(0, len(able) - 1, min(count, len(able)))
    return [int(able[int(place)]) for place in np.rint(places)]
