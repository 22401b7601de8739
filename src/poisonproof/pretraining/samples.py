"""Images in an order that their values decide, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError

__all__ = ["as_images", "samples_digest", "sorted_images"]


def as_images(X: Any, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return images as uint8, shape (n, C, H, W).

    Examples
    --------
    >>> as_images(np.zeros((2, 28, 28), np.uint8), (1, 28, 28)).shape
    (2, 1, 28, 28)
    """
    images = np.asarray(X)
    whole = (images.ndim == 4 and images.shape[1:] == shape) or (
        images.ndim == 3 and shape[0] == 1 and images.shape[1:] == shape[1:]
    )
    if images.dtype != np.uint8 or not whole:
        raise InvalidRowsError(
            f"Learned features take images of whole pixels (uint8) and shape {shape}, channels"
            f" first; got {images.dtype} of shape {images.shape[1:]}."
        )
    return np.ascontiguousarray(images).reshape(len(images), *shape)


def sorted_images(X: Any, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return all images sorted by value, the last pixel compared first; repeats stay.

    The caller's order, which may follow labels, leaves no trace.
    """
    images = as_images(X, shape)
    if not len(images):
        raise InvalidRowsError("There are no images to learn from.")
    flat = np.ascontiguousarray(images.reshape(len(images), -1)[:, ::-1])
    # Rows of one length compare as byte strings: NumPy drops zeros at the end of both alike.
    order = np.argsort(flat.view(f"S{flat.shape[1]}").ravel(), kind="stable")
    return images[order]


def samples_digest(images: NDArray[np.uint8]) -> str:
    """Return the SHA-256 of images and their shape."""
    sha = hashlib.sha256(f"{images.shape}".encode())
    sha.update(np.ascontiguousarray(images).data)
    return sha.hexdigest()
