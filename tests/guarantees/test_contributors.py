"""Attackers who control whole contributors never change a certified prediction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poisonproof import DPAClassifier, certify_votes
from poisonproof.members.closed_form import RidgeClassifier

ATTACKS = 500
K = 25
CLASSES = np.array(["ham", "spam"])


def reported(n: int, rng: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows of 120 contributors, some of whom report far more than others."""
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 6)) + np.where(y == 1, 0.7, -0.7)[:, np.newaxis]
    groups = np.array([f"user{int(120 * u * u)}" for u in rng.random(n)])
    return X, CLASSES[y], groups


def attacked(
    X: NDArray, y: NDArray, groups: NDArray, bad: NDArray, aim: NDArray, lie: str,
    rng: np.random.Generator,
) -> tuple[NDArray, NDArray, NDArray]:  # fmt: skip
    """Rewrite everything that the contributors `bad` hand in: delete, flood, copy the target."""
    honest = ~np.isin(groups, bad)
    parts = [(X[honest], y[honest], groups[honest])]
    for name in bad:
        n = int(rng.choice([0, 1, 20, 150]))
        spread = rng.choice([0.0, 0.1, 3.0])
        labels = np.full(n, lie) if rng.random() < 0.8 else rng.choice(CLASSES, n)
        parts.append((aim + spread * rng.normal(size=(n, 6)), labels, np.full(n, name)))
    order = rng.permutation(sum(len(part[1]) for part in parts))
    Xs, ys, gs = (np.concatenate(column)[order] for column in zip(*parts, strict=True))
    return Xs, ys, gs


def test_500_attacks_by_contributors_change_no_certified_prediction() -> None:
    rng = np.random.default_rng(0)
    X, y, groups = reported(800, rng)
    X_test, _, _ = reported(60, rng)
    clf = DPAClassifier(RidgeClassifier(), n_partitions=K, partitioner="group", classes=CLASSES)
    certificates = clf.fit(X, y, groups=groups).certify(X_test)
    assert certificates.threat.unit == "group"
    before = clf.votes(X_test)
    names = np.unique(groups)
    certified = np.flatnonzero(certificates.radius >= 1)
    assert len(certified) > 40
    changed_votes = full_size = overturned = 0
    for _ in range(ATTACKS):
        target = rng.choice(certified)
        radius = int(certificates.radius[target])
        size = radius if rng.random() < 0.7 else int(rng.integers(1, radius + 1))
        full_size += size == radius
        bad = rng.choice(names, size, replace=False)
        lie = CLASSES[certificates.labels[target] != CLASSES][0]
        poisoned = attacked(X, y, groups, bad, X_test[target], lie, rng)
        clf.fit(poisoned[0], poisoned[1], groups=poisoned[2])
        votes = clf.votes(X_test)
        labels = CLASSES[certify_votes(votes, 2).labels]
        safe = certificates.radius >= size
        assert safe[target]
        assert np.array_equal(labels[safe], certificates.labels[safe])
        overturned += int((labels != certificates.labels).sum())
        moved = (votes != before).any(axis=0)
        assert moved.sum() <= size
        changed_votes += int(moved.sum())
    assert full_size > ATTACKS / 2
    assert changed_votes > ATTACKS  # the attacks do reach members
    assert overturned  # and turn predictions that are certified against fewer contributors
