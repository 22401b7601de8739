"""From a sample to the row that meets the weights: entry by entry, for every row alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.exceptions import InvalidRowsError

__all__ = ["lift", "lifted_columns", "sample_matrix"]


def sample_matrix(X: Any) -> NDArray[Any]:
    """Return samples as numbers of shape (n, d), one row each, in the dtype they came in."""
    if sparse.issparse(X):
        raise InvalidRowsError(
            "Closed-form members need dense rows, but X is a sparse matrix. Use fewer columns "
            "and X.toarray(), for example HashedNGrams(n_features=1024)."
        )
    samples = np.asarray(X)
    if samples.dtype == object:
        if any(isinstance(cell, np.generic) and cell.dtype.kind in "mM" for cell in samples.flat):
            raise InvalidRowsError("Closed-form members take numbers only, and no dates.")
        try:
            samples = samples.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRowsError(
                f"Closed-form members take numbers only: {error}. Encode texts and categories "
                "inside the member, in a pipeline, or by a frozen schema."
            ) from None
    if samples.ndim < 2 or samples.dtype.kind not in "buif":
        raise InvalidRowsError(
            "Closed-form members take numbers of shape (n, d), but X has shape "
            f"{samples.shape} and dtype {samples.dtype}."
        )
    return samples.reshape(len(samples), int(np.prod(samples.shape[1:])))


def lifted_columns(n_features: int, settings: Mapping[str, Any]) -> int:
    """Return the width of a lifted row."""
    return 2 * n_features if settings["lift"] == "squares" else n_features


def lift(rows: NDArray[np.float64], settings: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the rows as they are, with their squares beside them, or as zeros and ones."""
    if settings["lift"] == "squares":
        with np.errstate(over="ignore"):  # infinite squares are refused where rows are rounded
            return np.concatenate([rows, rows * rows], axis=1)
    if settings["lift"] == "binary":
        # NaN compares false; a row that holds one must not slip through as zeros.
        return np.where(np.isnan(rows), np.nan, rows > settings["threshold"])
    return rows
