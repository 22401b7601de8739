"""Refined clusters for `ClusterVoteClassifier`."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from poisonproof.exceptions import StoreError
from poisonproof.pretraining.refinement.network import ClusterNetwork, load_clusters
from poisonproof.pretraining.transformer import as_pixels

__all__ = ["LearnedClusters"]


class LearnedClusters(ClusterMixin, BaseEstimator):
    """Images to the clusters of a finished network; nothing is learned here.

    Use it as ``ClusterVoteClassifier(clusterer=LearnedClusters(DIR), assignment="one_to_one")``.

    Parameters
    ----------
    folder : path
        Holds ``clusters.safetensors``, as ``poisonproof features refine`` writes it.
    device : {"cpu", "cuda"}, optional
        Where to compute; by default where they were refined.

    Attributes
    ----------
    n_clusters : int
        Number of clusters, K.
    digest_ : str
        Digest of the network.

    Guarantee
    ---------
    The cluster of an image is a function of that image and the network.

    Assumes
    -------
    Samples are trusted if the network was trained on them.
    """

    rowwise: ClassVar[bool] = True
    """The cluster of an image does not depend on what is asked with it."""

    def __init__(self, folder: str | os.PathLike[str], device: str | None = None) -> None:
        self.folder = folder
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the network; neither samples nor labels change it."""
        network = load_clusters(self.folder, device=self.device)
        self.digest_, self.n_clusters = network.digest(), network.clusters.n_clusters
        self.n_features_in_ = int(np.prod(network.spec.input_shape))
        self._network = network
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of images or flat rows of whole pixels from 0 to 255, shape (n,)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), dtype=np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return how sure each cluster is, shape (n, K)."""
        check_is_fitted(self, "digest_")
        network = self._loaded()
        return network.probabilities(as_pixels(X, network.spec.input_shape))

    def _loaded(self) -> ClusterNetwork:
        """Return the network; a stored model holds its digest only, and finds it in its folder."""
        network: ClusterNetwork | None = getattr(self, "_network", None)
        if network is None:
            network = load_clusters(self.folder, device=self.device)
            if network.digest() != self.digest_:
                raise StoreError(f"{self.folder} holds other clusters than this was fitted with.")
            self._network = network
        return network

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_network"}
