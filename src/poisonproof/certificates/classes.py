"""Class values and their indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.exceptions import InvalidInputError, UnknownLabelError

__all__ = ["check_classes", "class_indices"]


def check_classes(classes: ArrayLike, n_classes: int) -> NDArray[Any]:
    """Return `classes` as an array of `n_classes` distinct values, or raise."""
    array = np.asarray(classes)
    if array.shape != (n_classes,):
        raise InvalidInputError(
            f"classes must list {n_classes} values, one per column of counts. "
            f"Got shape {array.shape}."
        )
    if len(set(array.tolist())) != n_classes:
        raise InvalidInputError(f"classes must be distinct. Got {array.tolist()!r}.")
    return array


def class_indices(
    values: ArrayLike, classes: NDArray[Any] | None, n_classes: int, name: str = "y_true"
) -> NDArray[np.int64]:
    """Return the index of every class value.

    Parameters
    ----------
    values : array-like of shape (n,)
        Class values, or class indices where `classes` is None.
    classes : ndarray of shape (C,) or None
        The class values in the order of their indices.
    n_classes : int
        Number of classes, C.
    name : str
        What the error calls `values`.

    Raises
    ------
    UnknownLabelError
        Naming the first value that is no class. Text and numbers are never taken for each other.

    Examples
    --------
    >>> class_indices(["cat", "ant"], np.array(["ant", "bee", "cat"]), 3)
    array([2, 0])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidInputError(f"{name} must have one dimension. Got shape {array.shape}.")
    known = range(n_classes) if classes is None else classes.tolist()
    index = {value: i for i, value in enumerate(known)}
    found = np.fromiter((index.get(v, -1) for v in array.tolist()), np.int64, count=len(array))
    if len(found) and found.min() < 0:
        row = int(found.argmin())
        raise UnknownLabelError(
            f"{name}[{row}] is {array[row : row + 1].tolist()[0]!r}, which is none of the "
            f"{n_classes} classes: {_listed(known)}."
        )
    return found


def _listed(known: range | list[Any]) -> str:
    if isinstance(known, range):
        return f"the indices 0 to {len(known) - 1}"
    shown = ", ".join(repr(value) for value in known[:10])
    return shown if len(known) <= 10 else f"{shown}, ..."
