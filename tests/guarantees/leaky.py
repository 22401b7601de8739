"""Ensembles that break the law on purpose. Their accuracy is as good as any."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.preprocessing import StandardScaler

from poisonproof import DPAClassifier
from poisonproof.partition import ContentHash


class GlobalScaler(DPAClassifier):
    """Scales all rows together before partitioning: every row reaches every member."""

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        self.scaler_ = StandardScaler().fit(X)
        return super().fit(self.scaler_.transform(X), y, groups, sample_weight)

    def votes(self, X: Any) -> Any:
        return super().votes(self.scaler_.transform(X))


class ScalerAfterPartitioning(GlobalScaler):
    """Partitions the raw rows soundly, yet scales with all of them: only bits move."""

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        raw = ContentHash(n_partitions=self.n_partitions).assign(X)
        self.partitioner = "group"
        return super().fit(X, y, raw, sample_weight)


class _Members:
    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def digests(self) -> list[str]:
        return [member.tobytes().hex() for member in self.weights]


class PaddedNetwork:
    """Linear members trained in one batch, padded to the longest partition, with momentum.

    Padding is masked, so no member ever sees another's rows. But the number of steps is that of
    the longest partition, and momentum goes on moving members whose rows are used up.
    """

    threats = ("insert_delete", "label_flip", "replace")

    def __init__(self, n_partitions: int = 20, n_classes: int = 10, batch: int = 8) -> None:
        self.n_partitions, self.n_classes, self.batch = n_partitions, n_classes, batch

    def fit(self, X: Any, y: Any) -> Self:
        self.partitioner_ = ContentHash(n_partitions=self.n_partitions)
        assigned = self.partitioner_.assign(X)
        order = np.lexsort([*np.asarray(X).T, y])
        rows = [order[assigned[order] == index] for index in range(self.n_partitions)]
        longest = max(len(part) for part in rows)
        W = np.zeros((self.n_partitions, X.shape[1], self.n_classes))
        momentum = np.zeros_like(W)
        for start in range(0, longest, self.batch):
            momentum *= 0.9
            for index, part in enumerate(rows):
                now = part[start : start + self.batch]
                if len(now):
                    error = np.eye(self.n_classes)[y[now]] - X[now] @ W[index]
                    momentum[index] += X[now].T @ error / 1e4
            W += momentum
        self.ensemble_ = _Members(W)
        return self

    def votes(self, X: Any) -> Any:
        return np.einsum("nd,kdc->nkc", X, self.ensemble_.weights).argmax(axis=2)


class OneStream(DPAClassifier):
    """Counts rows: the seed of every member depends on how many there are."""

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        self.random_state = len(y)
        return super().fit(X, y, groups, sample_weight)


class RowNumberPartitions(DPAClassifier):
    """Cuts partitions by row number instead of content."""

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        self.partitioner = "group"
        return super().fit(X, y, np.arange(len(y)) % self.n_partitions, sample_weight)


class FoundClasses(DPAClassifier):
    """Takes the label set from the rows, so one new label widens every member."""

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        self.classes = None
        return super().fit(X, y, groups, sample_weight)
