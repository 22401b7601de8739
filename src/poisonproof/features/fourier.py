"""A fixed random Fourier map for tables."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer, as_numbers
from poisonproof.features.exact import ExactRows, exact_product, exact_rows

__all__ = ["RandomFourier"]


class RandomFourier(FrozenTransformer):
    """Random cosines whose inner products approximate a Gaussian kernel (Rahimi and Recht, 2007).

    Directions and phases come from `seed` alone, so no row has a say in them.

    Parameters
    ----------
    n_components : int, default=512
        Columns of the result.
    gamma : float, default=1.0
        The kernel is ``exp(-gamma |x - y|^2)``.
    seed : int, default=0
        Key of the random stream.
    n_jobs : int or None, default=None
        Threads. Has no influence on the result.

    Guarantee
    ---------
    The result for a row is a function of that row alone, bit for bit: products of rows and
    directions are exact (see `exact_rows`). A row that is not finite becomes NaN.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.5, 0.5]])
    >>> Z = RandomFourier(n_components=4096).transform(X)
    >>> bool(abs(Z[0] @ Z[1] - np.exp(-0.5)) < 0.05)
    True
    """

    def __init__(
        self,
        n_components: int = 512,
        *,
        gamma: float = 1.0,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.seed = seed
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        if self.n_components < 1:
            raise InvalidInputError(
                f"n_components must be at least 1, but is {self.n_components!r}."
            )
        if not 0 < self.gamma < np.inf:
            raise InvalidInputError(f"gamma must be positive and finite, but is {self.gamma!r}.")
        if not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise InvalidInputError(
                f"seed must be an integer of at least 0, but is {self.seed!r}: the map must not "
                "depend on anything that is not declared."
            )

    def _check_rows(self, X: Any) -> NDArray[Any]:
        rows = as_numbers(X)
        if rows.ndim != 2 or rows.dtype.kind not in "buif":
            raise InvalidRowsError(
                "RandomFourier takes numbers of shape (n, d), but X has shape "
                f"{rows.shape} and dtype {rows.dtype}."
            )
        return rows

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        directions, phases = _directions(
            int(self.seed), int(self.n_components), rows.shape[1], float(self.gamma)
        )
        finite = np.isfinite(rows).all(axis=1)
        exact = exact_rows(np.where(finite[:, np.newaxis], rows, 0))
        angles = exact_product(exact, directions)
        angles *= exact.scales[:, np.newaxis]
        angles *= directions.scales
        angles += phases
        waves: NDArray[np.float32] = np.cos(angles).astype(np.float32)
        waves *= np.float32(np.sqrt(2.0 / self.n_components))
        waves[~finite] = np.nan
        return waves


@lru_cache(maxsize=8)
def _directions(
    seed: int, n_components: int, n_features: int, gamma: float
) -> tuple[ExactRows, NDArray[np.float64]]:
    stream = np.random.Generator(np.random.Philox(key=seed))
    phases = stream.uniform(0.0, 2 * np.pi, n_components)
    directions = stream.standard_normal((n_components, n_features)) * np.sqrt(2 * gamma)
    return exact_rows(directions), phases
