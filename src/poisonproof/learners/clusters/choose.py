"""From a name to a clusterer."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.clusters.kmeans import KMeansClusters
from poisonproof.learners.clusters.mixture import MixtureClusters
from poisonproof.learners.clusters.spectral import SpectralClusters

__all__ = ["CLUSTERERS", "make_clusterer"]

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
