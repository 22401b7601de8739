"""Label flips at the radius, with members retrained on frozen features: nothing certified changes.

Features come from RotNet and from SimCLR; members are the rest of a network, and linear ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof import SSDPAClassifier
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.networks import (
    FrozenNetwork,
    PretrainSpec,
    TorchLearner,
    train_features,
)
from poisonproof_research.networks.heads import HeadLearner
from poisonproof_research.networks.tails import TailLearner

K, N, TESTS = 15, 225, 60
ROTNET = PretrainSpec(
    "rotnet", (1, 8, 8), epochs=3, batch_size=45, crop=1, mean=(0.3,), std=(0.37,), map_rows=45
)
SIMCLR = PretrainSpec(
    "simclr", (1, 8, 8), epochs=4, batch_size=75, learning_rate=0.05, mean=(0.3,), std=(0.37,),
    width=8, map_rows=75,
)  # fmt: skip


def images_and_labels() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    chosen = y < 3
    return (X[chosen].reshape(-1, 8, 8) * 15).astype(np.uint8), y[chosen]


X, Y = images_and_labels()
FROZEN: dict[str, FrozenNetwork] = {}


def features(method: str) -> FrozenNetwork:
    if method not in FROZEN:
        found = train_features(X[:N], ROTNET if method == "rotnet" else SIMCLR)
        assert found is not None
        FROZEN[method] = found
    return FROZEN[method]


def tail() -> tuple[Any, Any]:
    learner = TailLearner(
        features("rotnet"), epochs=12, batch_size=16, milestones=(8,), learning_rate=0.05,
        augmentation={"crop": 1}, stack_width=K, vote_rows=TESTS,
    )  # fmt: skip
    return learner, X.reshape(len(X), -1)


def head() -> tuple[Any, Any]:
    learner = HeadLearner(
        features("simclr"), views=4, epochs=60, batch_size=16, milestones=(40,), learning_rate=0.5,
        stack_width=K,
    )  # fmt: skip
    return learner, X.reshape(len(X), -1)


def linear() -> tuple[Any, Any]:
    learner = TorchLearner("linear", epochs=60, batch_size=64, learning_rate=0.5, stack_width=K)
    return learner, features("simclr").transform(X)


def closed_form() -> tuple[Any, Any]:
    return RidgeClassifier(), features("simclr").transform(X)


@pytest.mark.parametrize(
    "make", [pytest.param(tail, marks=pytest.mark.slow), head, linear, closed_form]
)
def test_flips_at_the_radius_change_no_certified_prediction(make: Any) -> None:
    learner, samples = make()

    # Partitions follow the images, as they would in use; the map is a function of them.
    def fit(y: Any) -> SSDPAClassifier:
        classifier = SSDPAClassifier(learner, n_partitions=K, classes=range(3))
        return classifier.fit(samples[:N], y)

    clean = fit(Y[:N])
    asked = samples[N : N + TESTS]
    certificates = clean.certify(asked)
    assert np.median(certificates.radius) >= 1
    where = clean.partitioner_.assign(samples[:N])
    votes = clean.votes(asked)
    rng = np.random.default_rng(0)
    attacks = 0
    for row in np.argsort(-certificates.radius)[:: TESTS // 4]:
        radius = int(certificates.radius[row])
        if not radius:
            continue
        # One flipped label in each of as many partitions as the radius allows, all of which
        # voted for the prediction.
        loyal = np.flatnonzero(votes[row] == certificates.labels[row])
        flipped = Y[:N].copy()
        for partition in rng.permutation(loyal)[:radius]:
            mine = np.flatnonzero(where == partition)
            victim = rng.choice(mine)
            flipped[victim] = (flipped[victim] + 1 + rng.integers(2)) % 3
        attacked = fit(flipped)
        moved = attacked.votes(asked)
        assert (moved != votes).any(axis=0).sum() <= radius
        assert attacked.predict(asked)[row] == certificates.labels[row]
        safe = certificates.radius >= radius
        assert np.array_equal(attacked.predict(asked)[safe], certificates.labels[safe])
        attacks += 1
    assert attacks >= 2


@pytest.mark.parametrize("method", ["rotnet", "simclr"])
def test_the_map_has_the_same_digest_with_all_labels_permuted(method: str) -> None:
    spec = replace(ROTNET if method == "rotnet" else SIMCLR, epochs=1)
    rng = np.random.default_rng(1)
    seen = []

    def digest(y: Any) -> str:
        from poisonproof_research.cli.features import neighbour_probe

        def watch(_report: Any, current: Any) -> None:
            seen.append(neighbour_probe(current(), X[:N], y, X[N:], Y[N:]))

        # Rows arrive sorted by label, so that their order would tell the labels.
        order = np.argsort(y, kind="stable")
        found = train_features(X[:N][order], spec, watch=watch)
        assert found is not None
        return found.digest()

    assert digest(Y[:N]) == digest(rng.permutation(Y[:N]))
    assert seen[0] != seen[1]
