"""Standardisation by constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer, as_numbers

__all__ = ["FixedScale"]


class FixedScale(FrozenTransformer):
    """Subtract a constant and divide by another, declared and not learned.

    Parameters
    ----------
    shift : float or array of shape (d,), default=0.0
        What is subtracted, for all columns or for each.
    scale : float or array of shape (d,), default=1.0
        What is divided by; positive.
    n_jobs : int or None, default=None
        Threads. Has no influence on the result.

    Guarantee
    ---------
    The result for a row is a function of that row alone, bit for bit.

    Examples
    --------
    >>> FixedScale(shift=10.0, scale=2.0).transform([[10.0, 14.0]])
    array([[0., 2.]], dtype=float32)
    """

    def __init__(
        self,
        *,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        n_jobs: int | None = None,
    ) -> None:
        self.shift = shift
        self.scale = scale
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        scale, shift = np.asarray(self.scale, np.float64), np.asarray(self.shift, np.float64)
        if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise InvalidInputError(
                "shift must be finite and scale finite and positive, but shift="
                f"{self.shift!r} and scale={self.scale!r}."
            )

    def _check_rows(self, X: Any) -> NDArray[Any]:
        rows = as_numbers(X)
        if rows.ndim < 2 or rows.dtype.kind not in "buif":
            raise InvalidRowsError(
                "FixedScale takes numbers of shape (n, d), but X has shape "
                f"{rows.shape} and dtype {rows.dtype}."
            )
        for name in ("shift", "scale"):
            shape = np.shape(getattr(self, name))
            if shape and shape != rows.shape[1:]:
                raise InvalidRowsError(
                    f"{name} has shape {shape}, but the rows of X have shape {rows.shape[1:]}."
                )
        return rows

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        scaled = rows.astype(np.float64) - np.asarray(self.shift, dtype=np.float64)
        scaled /= np.asarray(self.scale, dtype=np.float64)
        return scaled.astype(np.float32)
