"""Copies of images that members may see beside the images themselves."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition import sample_digests

__all__ = ["ImageCopies", "image_copies"]


class ImageCopies(NamedTuple):
    """Images and their copies.

    Attributes
    ----------
    images : ndarray of shape (copies * n, ...)
        All images as they are, then copy after copy of all.
    origin : ndarray of shape (copies * n,)
        Which image each is a copy of.
    groups : ndarray of shape (copies * n,)
        Name of that image, a digest of its pixels: equal images are one contributor.
    """

    images: NDArray[Any]
    origin: NDArray[np.intp]
    groups: NDArray[np.str_]


def image_copies(X: Any, *, reach: int = 4, mirrored: bool = True) -> ImageCopies:
    """Return images with their copies: moved into four corners, and mirrored.

    An image and its copies must fall into one partition, or one inserted image would reach several
    members: fit with ``partitioner="group"`` and `groups`. A contributor is then an image.

    Parameters
    ----------
    X : array of shape (n, height, width) or (n, height, width, channels)
        Images.
    reach : int, default=4
        Pixels by which copies are moved, both down or up and left or right; borders are filled by
        reflection. 0 moves nothing.
    mirrored : bool, default=True
        Whether to mirror images and moved images, too: then there are ten of each, else five.
        Signs and digits are others when mirrored.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from poisonproof import DPAClassifier
    >>> digits, y = load_digits(return_X_y=True)
    >>> seen = image_copies(digits.reshape(-1, 8, 8), reach=1, mirrored=False)
    >>> clf = DPAClassifier(n_partitions=20, partitioner="group", classes=range(10))
    >>> rows = seen.images.reshape(len(seen.images), -1)
    >>> clf = clf.fit(rows, y[seen.origin], groups=seen.groups)
    >>> float(clf.score(digits, y)) > 0.9
    True
    """
    images = np.asarray(X)
    if images.ndim not in {3, 4}:
        raise InvalidRowsError(
            "Images come as (n, height, width) or (n, height, width, channels), but X has shape "
            f"{images.shape}."
        )
    sides = images.shape[1:3]
    if not isinstance(reach, (int, np.integer)) or not 0 <= reach < min(sides):
        raise InvalidInputError(
            f"reach must be an integer from 0 to {min(sides) - 1}, less than a side of the "
            f"images, but is {reach!r}."
        )
    seen = [images, *_moved(images, reach)]
    if mirrored:
        seen += [one[:, :, ::-1] for one in seen]
    names = np.array([digest.tobytes().hex() for digest in sample_digests(images)])
    origin = np.tile(np.arange(len(images)), len(seen))
    return ImageCopies(np.concatenate(seen), origin, names[origin])


def _moved(images: NDArray[Any], reach: int) -> list[NDArray[Any]]:
    """Return images moved into each corner."""
    if reach == 0:
        return []
    height, width = images.shape[1:3]
    beyond = [(0, 0), (reach, reach), (reach, reach), (0, 0)][: images.ndim]
    wide = np.pad(images, beyond, mode="reflect")
    return [
        wide[:, top : top + height, left : left + width]
        for top, left in product((0, 2 * reach), repeat=2)
    ]
