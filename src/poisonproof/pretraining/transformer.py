"""A learned map as a scikit-learn transformer, for `SSDPAClassifier` and pipelines."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from poisonproof.exceptions import InvalidRowsError
from poisonproof.pretraining.frozen import load_features
from poisonproof.pretraining.samples import as_images

__all__ = ["LearnedFeatures", "as_pixels"]


class LearnedFeatures(TransformerMixin, BaseEstimator):
    """Images to the features of a finished map; nothing is learned here.

    Use it as ``SSDPAClassifier(RidgeClassifier(), LearnedFeatures(DIR), n_partitions=250)``.

    Parameters
    ----------
    folder : path
        Holds ``features.safetensors``, as ``poisonproof features train`` writes it.
    device : {"cpu", "cuda"}, optional
        Where to compute; by default where it was learned.

    Guarantee
    ---------
    The features of an image are a function of that image and the map.

    Assumes
    -------
    Samples are trusted if the map was learned from them.
    """

    def __init__(self, folder: str | os.PathLike[str], device: str | None = None) -> None:
        self.folder = folder
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the map; neither samples nor labels change it."""
        self.frozen_ = load_features(self.folder, device=self.device)
        self.n_features_in_ = int(np.prod(self.frozen_.spec.input_shape))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return features, shape (n, d), of images or flat rows of whole pixels from 0 to 255."""
        check_is_fitted(self)
        return self.frozen_.transform(as_pixels(X, self.frozen_.spec.input_shape))


def as_pixels(X: Any, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return images, or flat rows of them, as whole pixels of shape (n, C, H, W)."""
    pixels = np.asarray(X)
    with np.errstate(invalid="ignore"):  # what does not fit differs, and is refused below
        whole = pixels.astype(np.uint8) if pixels.dtype.kind in "iuf" else None
    if whole is None or not np.array_equal(whole, pixels):
        raise InvalidRowsError(
            "Learned features take whole pixels from 0 to 255; got"
            f" {'other values' if whole is not None else pixels.dtype}."
        )
    if whole.ndim == 2 and whole.shape[1] == int(np.prod(shape)):
        whole = whole.reshape(len(whole), *shape)
    return as_images(whole, shape)
