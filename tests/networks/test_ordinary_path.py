"""Networks wrapped as scikit-learn classifiers need no engine: they take the ordinary path."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from torch import nn

from poisonproof import DPAClassifier


class PlainNetwork(ClassifierMixin, BaseEstimator):
    """What a user writes: a loop with dropout, seeded by nobody."""

    def __init__(self, epochs=30):
        self.epochs = epochs

    def fit(self, X, y):
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.network_ = _network(len(self.classes_))
        optimizer = torch.optim.Adam(self.network_.parameters(), lr=1e-2)
        inputs, labels = torch.from_numpy(np.float32(X)), torch.from_numpy(codes)
        for _ in range(self.epochs):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.network_(inputs), labels).backward()
            optimizer.step()
        self.network_.eval()
        return self

    def predict(self, X):
        with torch.no_grad():
            scores = self.network_(torch.from_numpy(np.float32(X)))
        return self.classes_[scores.argmax(dim=1).numpy()]


def _network(n_classes=10):
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, n_classes))


def skorch_network():
    skorch = pytest.importorskip("skorch")

    class Network(skorch.NeuralNetClassifier):
        """Takes what scikit-learn hands over, float64 included."""

        def fit(self, X, y):
            return super().fit(np.float32(X), np.int64(y))

        def predict(self, X):
            return super().predict(np.float32(X))

    return Network(
        _network, criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, lr=1e-2,
        max_epochs=30, train_split=None, verbose=0,
    )  # fmt: skip


@pytest.mark.parametrize("make", [PlainNetwork, skorch_network])
def test_a_wrapped_network_works_and_its_members_are_alone(make):
    X, y = load_digits(return_X_y=True)
    X = X / 16

    def fitted(n_rows):
        model = DPAClassifier(make(), n_partitions=8, classes=range(10), n_jobs=1)
        return model.fit(X[:n_rows], y[:n_rows])

    before, after = fitted(800), fitted(801)
    changed = (before.votes(X[900:]) != after.votes(X[900:])).any(axis=0)
    assert changed.sum() <= 1
    assert before.score(X[900:], y[900:]) > 0.7
    assert before.failures_ == {}
