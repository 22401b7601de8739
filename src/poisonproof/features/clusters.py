"""The number of a sample's cluster as its only feature, for certificates against flipped labels."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans

__all__ = ["ClusterIndex"]


class ClusterIndex(TransformerMixin, BaseEstimator):
    """Find clusters of all samples by k-means; map a sample to the number of the nearest centre.

    It learns from samples, so it is for `SSDPAClassifier`, where samples are trusted;
    `DPAClassifier` refuses it. Labels do not enter.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    n_init : int, default=10
        Starts of k-means, of which the best is kept.
    random_state : int, default=0
        Seed of the starts.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> found = ClusterIndex().fit(X).transform(X)[:, 0]
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """

    learns_nothing: ClassVar[bool] = False

    def __init__(self, n_clusters: int = 2, n_init: int = 10, random_state: int = 0) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: Any) -> Self:
        """Find the centres; there is no way in for labels."""
        rows = _flat(X)
        means = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        self.centres_: NDArray[np.float64] = means.fit(rows).cluster_centers_
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the number of the nearest centre, shape (n, 1); the first of equally near ones."""
        rows = _flat(X)
        distances = np.stack([((rows - centre) ** 2).sum(axis=1) for centre in self.centres_])
        nearest: NDArray[np.float64] = distances.argmin(axis=0)[:, np.newaxis].astype(np.float64)
        return nearest


def _flat(X: Any) -> NDArray[np.float64]:
    rows = np.asarray(X, dtype=np.float64)
    return rows.reshape(len(rows), -1)
