"""Rows to add to or to take out of a fitted model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.exceptions import InvalidInputError, InvalidRowsError

__all__ = ["Rows", "concatenate_samples", "find_rows"]


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


def find_rows(keys: NDArray[np.void], wanted: NDArray[np.void]) -> NDArray[np.intp]:
    """Return one position in `keys` for every wanted key, no position twice.

    Repeated rows count as often as they occur: asking for a row twice takes two copies.

    Parameters
    ----------
    keys, wanted : ndarray of fixed-width bytes, shape (m,) and (r,)
        What identifies a row: sample, label and weight.

    Raises
    ------
    InvalidRowsError
        If a wanted row is not there, or not often enough.
    """
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    wanted_order = np.argsort(wanted, kind="stable")
    sorted_wanted = wanted[wanted_order]
    repeats = np.arange(len(wanted)) - np.searchsorted(sorted_wanted, sorted_wanted)
    position = np.searchsorted(sorted_keys, sorted_wanted) + repeats
    inside = np.minimum(position, len(keys) - 1)
    missing = (position >= len(keys)) | (sorted_keys[inside] != sorted_wanted)
    if missing.any():
        row = int(wanted_order[missing].min())
        raise InvalidRowsError(
            f"row {row} of `remove` is not in the training set (or not as often as it is to be "
            f"removed); {int(missing.sum())} of {len(wanted)} rows were not found. Nothing changed."
        )
    return order[position]


def concatenate_samples(first: Any, second: Any) -> Any:
    """Stack two sets of samples of the same kind of container."""
    if sparse.issparse(first):
        parts: list[Any] = [first, second]
        return sparse.vstack(parts, format="csr")
    if hasattr(first, "columns"):
        if hasattr(first, "iloc"):
            import pandas as pd

            return pd.concat([first, second], ignore_index=True)
        return first.vstack(second)
    return np.concatenate([np.asarray(first), np.asarray(second)])
