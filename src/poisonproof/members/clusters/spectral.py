"""Spectral clusters of the neighbour graph of samples, without labels."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh
from sklearn.base import BaseEstimator, ClusterMixin, clone

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.members.clusters.kmeans import KMeansClusters, check_counts
from poisonproof.members.clusters.mixture import MixtureClusters
from poisonproof.members.similarity import nearest_rows
from poisonproof.threads import one_thread

_DENSE = 400  # below this many samples all eigenvectors are computed: quicker, and always exact


class SpectralClusters(ClusterMixin, BaseEstimator):
    """Cut the graph of nearest neighbours by the largest eigenvectors of its normalised matrix.

    Every sample is joined to its nearest samples by cosine; the eigenvectors say which samples
    hang together, and a pivoted QR factorisation reads the clusters off (Damle, Minden and Ying,
    2019): no random start, no iteration. A new sample takes the cluster of most of its
    neighbours.

    Parameters
    ----------
    n_clusters : int, default=10
        Number of clusters, K.
    n_neighbors : int, default=30
        Neighbours joined to each sample, and asked for a new one.
    precision : {"single", "double"}, default="single"
        Bits kept of a row; see `poisonproof.features.exact_rows`.
    device : str, optional
        "cuda" finds neighbours on a GPU, with the same result.

    Attributes
    ----------
    labels_ : ndarray of shape (m,)
        The cluster of every sample.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.1, 1.0], [0.0, 1.0]])
    >>> labels = SpectralClusters(n_clusters=2, n_neighbors=1).fit(X).labels_
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """

    rowwise: ClassVar[bool] = True
    """The cluster of a new sample does not depend on what is asked with it."""

    rows_: ExactRows

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        n_neighbors: int = 30,
        precision: Precision = "single",
        device: str | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.precision = precision
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the clusters of the samples `X`, shape (m, d); `y` is not looked at."""
        check_counts(self, ("n_clusters", "n_neighbors"), len(X))
        self.rows_ = exact_rows(np.asarray(X), self.precision)
        found = nearest_rows(self.rows_, self.rows_, self.n_neighbors + 1, self.device)
        with one_thread():
            vectors = leading_vectors(neighbor_graph(found), self.n_clusters)
            self.labels_ = read_clusters(vectors)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of most neighbours of every row, ties to the smaller cluster."""
        asked = exact_rows(np.asarray(X), self.precision)
        found = nearest_rows(asked, self.rows_, self.n_neighbors, self.device)
        votes = self.labels_[found]
        counts = np.stack([(votes == c).sum(axis=1) for c in range(self.n_clusters)], axis=1)
        return np.asarray(counts.argmax(axis=1), dtype=np.int64)


def neighbor_graph(found: NDArray[np.int64]) -> sparse.csr_array:
    """Return the symmetric graph of neighbours; a sample that is its own neighbour has no arc."""
    n, width = found.shape
    sources = np.repeat(np.arange(n), width)
    targets = found.ravel()
    arcs = sources != targets
    ones = np.ones(int(arcs.sum()))
    one_way = sparse.csr_array((ones, (sources[arcs], targets[arcs])), shape=(n, n))
    return sparse.csr_array(one_way + one_way.T)


def leading_vectors(graph: sparse.csr_array, count: int) -> NDArray[np.float64]:
    """Return the eigenvectors of the `count` largest eigenvalues of D^-1/2 W D^-1/2, as columns.

    Rows are scaled to length one, which makes samples of few and of many neighbours comparable.
    """
    _, vectors, _ = leading_pairs(graph, count)
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    unit: NDArray[np.float64] = vectors / np.where(lengths > 0, lengths, 1.0)
    return unit


def leading_pairs(
    graph: sparse.csr_array, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the `count` largest eigenvalues of D^-1/2 W D^-1/2, their vectors, and D^-1/2."""
    n = graph.shape[0]
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    scale = np.zeros(n)
    np.divide(1.0, np.sqrt(degrees), out=scale, where=degrees > 0)
    matrix = sparse.diags_array(scale) @ graph @ sparse.diags_array(scale)
    if n <= max(_DENSE, 2 * count + 1):
        values, vectors = linalg.eigh(matrix.toarray(), subset_by_index=[n - count, n - 1])
    else:
        # A start that no eigenvector is orthogonal to, the same for the same number of samples.
        start = 1.0 + np.random.default_rng(0).random(n)
        values, vectors = eigsh(matrix, k=count, which="LA", v0=start, tol=1e-6)
    return values, vectors, scale


def read_clusters(vectors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Turn the eigenvectors, shape (m, K), so that every cluster has its own axis."""
    count = vectors.shape[1]
    _, _, pivots = linalg.qr(vectors.T, pivoting=True, mode="economic")
    left, _, right = linalg.svd(vectors[pivots[:count]].T)
    turned = np.abs(vectors @ (left @ right))
    return np.asarray(turned.argmax(axis=1), dtype=np.int64)


# From a name to a clusterer.

CLUSTERERS: dict[str, Any] = {
    "spectral": SpectralClusters,
    "kmeans": KMeansClusters,
    "mixture": MixtureClusters,
}


def make_clusterer(clusterer: Any, n_clusters: int, device: str | None = None) -> Any:
    """Return an unfitted clusterer with `fit` and `predict`.

    Parameters
    ----------
    clusterer : {"spectral", "kmeans", "mixture"} or estimator
        "spectral" cuts the neighbour graph, "kmeans" looks for round clusters, "mixture" for
        Gaussian ones with an axis-aligned spread.
    n_clusters : int
        Number of clusters, K. An estimator brings its own.
    device : str, optional
        Where to compute; has no influence on the clusters. An estimator has its own.

    Examples
    --------
    >>> make_clusterer("kmeans", 10).n_clusters
    10
    """
    if not isinstance(clusterer, str):
        if not (hasattr(clusterer, "fit") and hasattr(clusterer, "predict")):
            raise InvalidInputError(
                f"clusterer is one of {', '.join(CLUSTERERS)}, or an estimator with fit and "
                f"predict. Got {clusterer!r}."
            )
        if device is not None:
            raise InvalidInputError(
                f"device={device!r} is for clusterers by name; an estimator has its own."
            )
        return clone(clusterer)
    if clusterer not in CLUSTERERS:
        raise InvalidInputError(f"clusterer is one of {', '.join(CLUSTERERS)}. Got {clusterer!r}.")
    return CLUSTERERS[clusterer](n_clusters, device=device)
