"""Votes of rows on MNIST: attacks of the certified size fail, one more wins, on refits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from poisonproof import NeighborVoteClassifier, WeightedVoteClassifier
from poisonproof.features import Deskew, OrientationHistogram
from poisonproof.members.weights import WalkWeights


@pytest.mark.slow
@pytest.mark.mnist
def test_thousands_of_poisoned_images_turn_no_certified_digit() -> None:
    if "POISONPROOF_DATA" not in os.environ:
        pytest.skip("POISONPROOF_DATA names no folder with mnist.npz")
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        X, y = file["x_train"], file["y_train"].astype(int)
        asked = file["x_test"][:300]
    features = make_pipeline(Deskew(), OrientationHistogram(cell=5, block=2, root=True))
    clf = NeighborVoteClassifier(features, threshold=0.89, classes=range(10)).fit(X, y)
    certificates = clf.certify(asked)
    row = int(np.argsort(certificates.radius)[150])
    radius, label = int(certificates.radius[row]), int(certificates.labels[row])
    assert radius > 1000
    order = np.random.default_rng(0).permutation(len(X))
    for size, survives in ((radius, True), (radius + 1, False)):
        # The attacker inserts copies of the very image that is asked, under the next best label.
        poison = np.repeat(asked[row : row + 1], size, axis=0)
        target = np.full(size, certificates.runner_up[row])
        attacked = NeighborVoteClassifier(features, threshold=0.89, classes=range(10)).fit(
            np.concatenate([X[order], poison]), np.concatenate([y[order], target])
        )
        again = attacked.certify(asked)
        assert (again.labels[row] == label) == survives
        safe = certificates.radius >= size
        assert np.array_equal(again.labels[safe], certificates.labels[safe])


@pytest.mark.mnist
def test_hundreds_of_flipped_labels_turn_no_certified_digit() -> None:
    if "POISONPROOF_DATA" not in os.environ:
        pytest.skip("POISONPROOF_DATA names no folder with mnist.npz")
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        X, y = file["x_train"][:6000].reshape(6000, -1), file["y_train"][:6000].astype(int)
        asked = file["x_test"][:200].reshape(200, -1)
    weights = WalkWeights()
    clf = WeightedVoteClassifier(weights=weights, classes=range(10)).fit(X, y)
    certificates = clf.certify(asked)
    row = int(np.argsort(certificates.radius)[150])
    radius, label = int(certificates.radius[row]), int(certificates.labels[row])
    assert radius > 50
    numbered = WeightedVoteClassifier(weights=weights, classes=range(6000))
    numbered.fit(X, np.arange(6000))
    ((counted,),) = clf._weights(asked[row : row + 1])
    rival = int(certificates.runner_up[row])
    own = (clf.labels_ == label).astype(int) - (clf.labels_ == rival)
    cheapest = numbered.labels_[np.argsort(-counted * (own + 1), kind="stable")]
    for size, survives in ((radius, True), (radius + 1, False)):
        poisoned = y.copy()
        poisoned[cheapest[:size]] = rival
        again = clone(clf).fit(X, poisoned).certify(asked)
        assert (again.labels[row] == label) == survives
        safe = certificates.radius >= size
        assert np.array_equal(again.labels[safe], certificates.labels[safe])
