"""The nearest other images of every image, by the cosine of their features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.features.exact import ExactRows, exact_rows
from poisonproof.learners.similarity import nearest_rows

__all__ = ["neighbour_table"]

_ROWS = 256


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
    if device == "cpu":
        found, _ = nearest_rows(rows, rows, count + 1)
    else:
        found = sorted_on_device(rows, count + 1, torch.device(device))
    return _without_itself(found)


def sorted_on_device(rows: ExactRows, count: int, device: torch.device) -> NDArray[np.int64]:
    """Return what `nearest_rows` returns: sorted where the products are, nothing is sent back."""
    values = torch.from_numpy(rows.values).to(device)
    inverse = torch.from_numpy(_inverse_lengths(rows)).to(device)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # shorter formats would round the sums
    try:
        parts = [
            _nearest(values, inverse, slice(start, start + _ROWS), count)
            for start in range(0, len(rows), _ROWS)
        ]
    finally:
        torch.set_float32_matmul_precision(before)
    return torch.cat(parts).cpu().numpy()


def _nearest(values: Tensor, inverse: Tensor, here: slice, count: int) -> Tensor:
    cosines = (values[here] @ values.T) * inverse[here, None] * inverse
    return torch.sort(cosines, dim=1, descending=True, stable=True).indices[:, :count]


def _inverse_lengths(rows: ExactRows) -> NDArray[np.float32]:
    squares = rows.square_lengths()
    inverse = np.zeros(len(rows))
    np.divide(1.0, np.sqrt(squares), out=inverse, where=squares > 0)
    return inverse.astype(np.float32)


def _without_itself(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop every row from its own list; where repeats of it crowd it out, drop the last instead."""
    itself = found == np.arange(len(found))[:, None]
    itself[~itself.any(axis=1), -1] = True
    others: NDArray[np.int64] = found[~itself].reshape(len(found), -1)
    return others
