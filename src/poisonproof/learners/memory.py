"""Which requests for memory no machine can grant, so that they say something about a partition."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

__all__ = ["ADDRESSES", "is_impossible", "largest_cell"]

ADDRESSES = 2**47
"""Bytes that a process can address at most (128 TiB), however much memory a machine has."""


def is_impossible(error: MemoryError) -> bool:
    """Say whether an array was asked for that is larger than what a process can address.

    Such a request fails everywhere and always, so it is a property of the rows that made a learner
    ask, as any other exception is. A smaller request may fail here and succeed elsewhere.

    Examples
    --------
    >>> try:
    ...     np.empty(2**50)
    ... except MemoryError as error:
    ...     is_impossible(error)
    True
    >>> is_impossible(MemoryError())
    False
    """
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is None or dtype is None:
        return False
    return bool(prod(map(int, shape)) * np.dtype(dtype).itemsize >= ADDRESSES)


def largest_cell(X: Any) -> str:
    """Return in words the largest number of some rows, which may be why so much was asked for.

    >>> largest_cell(np.array([[1.0, 2.0], [-1e15, 3.0]]))
    ' (its largest value is -1e+15, in column 0)'
    >>> largest_cell(["a text"])
    ''
    """
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "iuf" or X.ndim != 2 or not X.size:
        return ""
    sizes = np.nan_to_num(np.abs(X.astype(np.float64)), nan=-1.0)
    row, column = np.unravel_index(int(np.argmax(sizes)), X.shape)
    return f" (its largest value is {X[row, column]:g}, in column {int(column)})"
