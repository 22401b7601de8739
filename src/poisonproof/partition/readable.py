"""Which rows have a canonical form at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import as_container, is_sparse, n_rows, take_rows

__all__ = ["readable_rows"]


def readable_rows(X: Any) -> NDArray[np.bool_]:
    """Return which rows hold only what the canonical form knows, shape (n,).

    Whether a row does is its own matter. Rows are looked at together, and by halves where one of
    them raises, so many readable rows cost little.

    Examples
    --------
    >>> readable_rows([[1, 2], [3, 4j], [5, "six"]])
    array([ True, False,  True])
    """
    X = as_container(X)
    readable = np.ones(n_rows(X), dtype=np.bool_)
    if is_sparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.itemsize <= 8):
        return readable
    waiting = [np.arange(len(readable))]
    while waiting:
        rows = waiting.pop()
        try:
            sample_digests(take_rows(X, rows))
        except InvalidRowsError:
            if len(rows) == 1:
                readable[rows] = False
            else:
                waiting += np.array_split(rows, 2)
    return readable
