"""Walks on MNIST: the cheapest flips of the certified size fail, one more wins, on real refits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from poisonproof import WeightedVoteClassifier


@pytest.mark.mnist
def test_hundreds_of_flipped_labels_turn_no_certified_digit() -> None:
    if "POISONPROOF_DATA" not in os.environ:
        pytest.skip("POISONPROOF_DATA names no folder with mnist.npz")
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        X, y = file["x_train"][:6000].reshape(6000, -1), file["y_train"][:6000].astype(int)
        asked = file["x_test"][:200].reshape(200, -1)
    clf = WeightedVoteClassifier(classes=range(10)).fit(X, y)
    certificates = clf.certify(asked)
    row = int(np.argsort(certificates.radius)[150])
    radius, label = int(certificates.radius[row]), int(certificates.labels[row])
    assert radius > 50
    numbered = WeightedVoteClassifier(classes=range(6000)).fit(X, np.arange(6000))
    ((weights,),) = clf._asked(asked[row : row + 1])
    rival = int(certificates.runner_up[row])
    own = (clf.labels_ == label).astype(int) - (clf.labels_ == rival)
    cheapest = numbered.labels_[np.argsort(-weights * (own + 1), kind="stable")]
    for size, survives in ((radius, True), (radius + 1, False)):
        poisoned = y.copy()
        poisoned[cheapest[:size]] = rival
        again = WeightedVoteClassifier(classes=range(10)).fit(X, poisoned).certify(asked)
        assert (again.labels[row] == label) == survives
        safe = certificates.radius >= size
        assert np.array_equal(again.labels[safe], certificates.labels[safe])
