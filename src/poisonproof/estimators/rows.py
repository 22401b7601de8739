"""Rows to add to or to take out of a fitted model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError

__all__ = ["Rows", "find_rows", "missing_rows"]


class Rows(NamedTuple):
    """Labelled rows, with their contributors and weights where the model has any."""

    X: Any
    y: Any
    groups: Any = None
    sample_weight: Any = None

    @classmethod
    def parse(cls, rows: Any, name: str) -> Rows:
        """Accept ``(X, y)``, longer tuples in the order of the fields, or a mapping of them."""
        if isinstance(rows, Mapping) and {"X", "y"} <= set(rows) <= set(cls._fields):
            return cls(**rows)
        if isinstance(rows, tuple) and 2 <= len(rows) <= len(cls._fields):
            return cls(*rows)
        raise InvalidInputError(
            f"{name} must be a tuple (X, y), (X, y, groups) or (X, y, groups, sample_weight), or a "
            f"mapping with these keys; got {type(rows).__name__}."
        )


def find_rows(
    keys: NDArray[np.void], wanted: NDArray[np.void]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Find one position in `keys` for every wanted key, no position twice.

    Repeated rows count as often as they occur: asking for a row twice takes two copies.

    Parameters
    ----------
    keys, wanted : ndarray of fixed-width bytes, shape (m,) and (r,)
        What identifies a row: sample, label and weight.

    Returns
    -------
    positions : ndarray
        Where the rows that are there stand.
    missing : ndarray of bool, shape (r,)
        Which rows are not there, or not often enough.
    """
    if len(keys) == 0:
        return np.empty(0, dtype=np.intp), np.ones(len(wanted), dtype=np.bool_)
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    wanted_order = np.argsort(wanted, kind="stable")
    sorted_wanted = wanted[wanted_order]
    repeats = np.arange(len(wanted)) - np.searchsorted(sorted_wanted, sorted_wanted)
    position = np.searchsorted(sorted_keys, sorted_wanted) + repeats
    inside = np.minimum(position, len(keys) - 1)
    absent = (position >= len(keys)) | (sorted_keys[inside] != sorted_wanted)
    missing = np.zeros(len(wanted), dtype=np.bool_)
    missing[wanted_order] = absent
    return order[inside[~absent]], missing


def missing_rows(missing: Sequence[int], n_wanted: int) -> InvalidRowsError:
    """Return the error that names a row which cannot be removed."""
    return InvalidRowsError(
        f"row {min(missing)} of `remove` is not in the training set (or not as often as it is to "
        f"be removed); {len(missing)} of {n_wanted} rows were not found. Nothing changed."
    )
