"""Ridge systems of one member: solved on its own matrix, in its own shape, on one thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

__all__ = ["OVERFLOW", "best_alpha", "positive_solve", "ridge_weights"]

OVERFLOW = (
    "values are so large that products of them overflow. Scale the features, or bound them by a "
    "schema"
)
"""What a member says that abstains because of one huge cell."""


def positive_solve(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``matrix^-1 right`` for a symmetric positive definite matrix (Cholesky)."""
    _, solution, info = dposv(matrix, right, lower=1)
    if info != 0 or not np.isfinite(solution).all():
        if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
            raise FloatingPointError(OVERFLOW)
        raise np.linalg.LinAlgError("the ridge system is not positive definite")
    found: NDArray[np.float64] = solution
    return found


def ridge_weights(
    rows: NDArray[np.float64], targets: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Return the weights (d, p) that minimise ``|rows w - targets|^2 + alpha |w|^2``.

    Of the two equivalent systems, the one with fewer unknowns is solved.
    """
    n, d = rows.shape
    if n <= d:
        gram = rows @ rows.T
        gram[np.diag_indices(n)] += alpha
        weights: NDArray[np.float64] = rows.T @ positive_solve(gram, targets)
        return weights
    scatter = rows.T @ rows
    scatter[np.diag_indices(d)] += alpha
    return positive_solve(scatter, rows.T @ targets)


def best_alpha(
    gram: NDArray[np.float64],
    targets: NDArray[np.float64],
    alphas: Sequence[float],
    leverage: NDArray[np.float64] | float = 0.0,
) -> float:
    """Return the ridge with the smallest squared leave-one-out error.

    With H the matrix that maps targets to fitted values, the error at a row left out is its
    residual divided by ``1 - H_jj``, so no second fit is needed.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        Inner products of the (centred, weighted) rows.
    targets : ndarray of shape (m, p)
        What they should map to, centred and weighted in the same way.
    alphas : sequence of float
        Candidates; of equally good ones the first wins.
    leverage : ndarray of shape (m,) or float
        What an unpenalised constant adds to the diagonal of H.
    """
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    turned = vectors.T @ targets
    errors = []
    for alpha in alphas:
        shrink = values / (values + alpha)
        residual = targets - vectors @ (shrink[:, np.newaxis] * turned)
        free = 1.0 - leverage - (vectors * vectors) @ shrink
        # A row that fits itself entirely says nothing about rows left out.
        free = np.maximum(free, 1e-10)
        errors.append(float(np.square(residual / free[:, np.newaxis]).sum()))
    return float(alphas[int(np.argmin(errors))])
