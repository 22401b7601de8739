"""Real attacks on a protected and on an unprotected model of the same kind, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.attacks.kinds import ATTACK_KINDS, AttackKind
from poisonproof.attacks.materials import Material, make_material
from poisonproof.attacks.outcomes import AttackedRow, AttackStudy, KindOutcome
from poisonproof.attacks.poison import Poison, Target, Victim
from poisonproof.attacks.search import Trace, first_change, votes_to_turn
from poisonproof.attacks.texts import TextRows
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition import make_partitioner
from poisonproof.progress import Progress, Silent

__all__ = ["attack_study"]


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
        Unfitted or fitted; it is cloned and trained anew for every attack.
    X : array of shape (m, d), or m texts
        Clean training rows.
    y : array of shape (m,)
        Their labels.
    X_test : array of shape (n, d), or n texts
        Rows whose predictions are attacked; targets are spread over the certified radii.
    groups : array of shape (m,), optional
        Who contributed each row, for ``partitioner="group"``: attacks then count contributors.
    material : Material, optional
        What `X` and `X_test` are made of, if they are not plain numbers or texts: `CellRows` for
        the cells of a table, `NumberRows` for images.
    kinds : sequence of AttackKind, optional
        By default all that the classifier certifies.
    n_targets : int, default=8
        Test rows to attack with each kind.
    limit : int, optional
        Largest attack; half of the training rows (contributors) by default.
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
    by_group = make_partitioner(classifier.partitioner, classifier.n_partitions).unit == "group"
    if by_group and groups is None:
        raise InvalidInputError(
            "This model's certificates count contributors: say who contributed each row, "
            "groups=[...]."
        )
    material = make_material(X) if material is None else material
    owners = np.asarray(groups, dtype=object) if by_group else None
    clean = clone(classifier).fit(material.encode(material.rows), y, groups=owners)
    chosen = list(kinds) if kinds is not None else _certified_kinds(clean)
    victim = Victim(material, np.asarray(y), clean.classes_, clean.partitioner_, owners)
    n_units = len(victim.y) if owners is None else len(set(owners.tolist()))
    most = n_units // 2 if limit is None else min(limit, n_units)
    rows = make_material(X_test).rows if isinstance(material, TextRows) else np.asarray(X_test)
    listener = progress if progress is not None else Silent()
    listener.start(len(chosen) * n_targets, "Attacking")
    try:
        outcomes = tuple(
            _attack_with(kind, clean, victim, rows, n_targets, most, seed, listener)
            for kind in chosen
        )
    finally:
        listener.stop()
    return AttackStudy(clean.n_partitions, len(victim.y), most, outcomes)


def _attack_with(
    kind: AttackKind,
    clean: Any,
    victim: Victim,
    test_rows: NDArray[Any],
    n_targets: int,
    limit: int,
    seed: int,
    progress: Progress,
) -> KindOutcome:
    asked = kind.asked(victim, test_rows)
    samples = victim.material.encode(asked)
    certificates = clean.certify(samples, kind.threat)
    bare = clone(clean).set_params(n_partitions=1, partitioner="content")
    votes, bare_labels = clean.votes(samples), bare.fit(victim.samples, victim.y).predict(samples)
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
        question = samples[row : row + 1]
        rows.append(
            AttackedRow(
                row=row,
                radius=target.radius,
                on_votes=votes_to_turn(target.votes, len(victim.classes), goal),
                protected=_trace(kind, clean, victim, target, question, limit, seed),
                unprotected=_trace(kind, bare, victim, aim, question, limit, seed),
            )
        )
        progress.advance()
    threat = certificates.threat
    title = kind.title.replace("row", "contributor") if threat.unit == "group" else kind.title
    return KindOutcome(kind.name, title, threat, tuple(rows))


def _trace(
    kind: AttackKind,
    model: Any,
    victim: Victim,
    target: Target,
    question: NDArray[Any],
    limit: int,
    seed: int,
) -> Trace:
    """Retrain `model` on growing attacks and watch its answer to the question."""
    written = kind.poison(victim, target, limit, np.random.default_rng([seed, target.row]))
    poison: Poison = replace(written, X=victim.material.encode(written.X))
    by_group = victim.groups is not None and model.partitioner == "group"

    def changes(size: int) -> bool:
        X, y = poison.apply(victim.samples, victim.y, size)
        owners = poison.apply_groups(victim.groups, size) if by_group else None  # type: ignore[arg-type]
        return bool(clone(model).fit(X, y, groups=owners).predict(question)[0] != target.label)

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
