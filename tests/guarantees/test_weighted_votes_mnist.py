"""Weights on MNIST: the cheapest flips of the certified size fail, one more wins, on refits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from poisonproof import WeightedVoteClassifier
from poisonproof.members.weights import WalkWeights


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
