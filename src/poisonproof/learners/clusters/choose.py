"""From a name to a clusterer."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.clusters.spectral import SpectralClusters

__all__ = ["CLUSTERERS", "make_clusterer"]

CLUSTERERS = ("spectral", "kmeans", "mixture")


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
        For "spectral": where to look for neighbours. The others run on the processor.

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
                f"device={device!r} is for clusterer='spectral'; an estimator has its own."
            )
        return clone(clusterer)
    if clusterer == "spectral":
        return SpectralClusters(n_clusters, device=device)
    if clusterer in CLUSTERERS and device is not None:
        raise InvalidInputError(
            f"clusterer={clusterer!r} runs on the processor. Leave device={device!r} out, or take "
            "clusterer='spectral'."
        )
    if clusterer == "kmeans":
        return KMeans(n_clusters, n_init=10)
    if clusterer == "mixture":
        return GaussianMixture(n_clusters, covariance_type="diag", n_init=3, reg_covar=1e-4)
    raise InvalidInputError(f"clusterer is one of {', '.join(CLUSTERERS)}. Got {clusterer!r}.")
