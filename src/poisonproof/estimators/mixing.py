"""Noticing maps that mix the rows they see together, by mapping a few rows alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import GuaranteeError
from poisonproof.features.pipeline import is_own_map
from poisonproof.partition import take_canonical
from poisonproof.partition.containers import is_sparse, n_rows

__all__ = ["refuse_mixing"]

_TOLERANCE = 1e-3
"""Far above what another order of additions does to a float32, far below what mixing does."""


def refuse_mixing(features: Any, transform: Callable[[Any], Any], X: Any, mapped: Any) -> None:
    """Raise if the first, middle or last row alone is mapped to something else than among others.

    A map that mixes rows lets what one row becomes depend on the others that happen to come with
    it. Three rows do not prove that a map never does so; they find scalers, ranks and
    normalisation over what is passed.

    Parameters
    ----------
    features : transformer
        The map; maps of this library are known to take every row by itself.
    transform : callable
        Calls it.
    X : container of n rows
        What was mapped, in canonical values.
    mapped : array, sparse matrix or frame of n rows
        What the map made of them.
    """
    count = 0 if is_own_map(features) else n_rows(X)
    for row in sorted({0, count // 2, count - 1}) if count > 1 else ():
        rows = np.array([row])
        alone = _values(transform(take_canonical(X, rows)))
        among = _values(take_canonical(mapped, rows))
        if not _alike(alone, among):
            raise GuaranteeError(
                f"features maps row {row} differently alone than among the {count} rows that are "
                "mapped together, so a prediction would depend on what else is asked. A map must "
                "treat every row by itself; what it learns, it must learn in fit."
            )


def _values(samples: Any) -> NDArray[Any]:
    return np.asarray(samples.toarray() if is_sparse(samples) else samples)


def _alike(first: NDArray[Any], second: NDArray[Any]) -> bool:
    if first.shape != second.shape:
        return False
    if first.dtype.kind not in "biuf" or second.dtype.kind not in "biuf":
        return bool(np.array_equal(first, second))
    if not first.size:
        return True
    finite = np.abs(second[np.isfinite(second)].astype(np.float64))
    scale = float(finite.max(initial=0.0))
    return bool(np.allclose(first, second, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True))
