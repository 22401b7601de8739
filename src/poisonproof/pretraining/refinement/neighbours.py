"""The nearest other images of every image, by the cosine of their features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.exact import exact_rows
from poisonproof.learners.similarity import nearest_rows

__all__ = ["neighbour_table"]


def neighbour_table(vectors: NDArray[Any], count: int, device: str) -> NDArray[np.int64]:
    """Return the `count` nearest other rows of every row, nearest first.

    Parameters
    ----------
    vectors : ndarray of shape (n, d)
        Features; rounded row by row, so that cosines are alike on every device.
    count : int
        At most n - 1.
    device : str
        Where to compute; has no influence on the result.

    Examples
    --------
    >>> neighbour_table(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 1, "cpu").ravel()
    array([1, 0, 1])
    """
    rows = exact_rows(vectors, "single")
    count = min(count, len(rows) - 1)
    found = nearest_rows(rows, rows, count + 1, None if device == "cpu" else device)
    return _without_itself(found)


def _without_itself(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop every row from its own list; where repeats of it crowd it out, drop the last instead."""
    itself = found == np.arange(len(found))[:, None]
    itself[~itself.any(axis=1), -1] = True
    others: NDArray[np.int64] = found[~itself].reshape(len(found), -1)
    return others
