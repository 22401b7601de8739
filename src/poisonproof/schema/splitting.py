"""Which rows are held out of training: decided by a hash of each row."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["held_out_rows"]

DOMAIN = b"poisonproof.split1"
"""Hashed in front, so that a row's side says nothing about its partition."""


def held_out_rows(X: Any, share: float, groups: Any = None) -> NDArray[np.bool_]:
    """Return which rows are held out of training.

    Parameters
    ----------
    X : array of shape (n, ...)
        Samples.
    share : float
        The share to hold out.
    groups : array of shape (n,), optional
        Contributors. If given, all rows of a contributor fall on one side.

    Returns
    -------
    ndarray of bool, shape (n,)

    Guarantee
    ---------
    A row's side depends on that row's sample (with `groups`: on its contributor) and `share`. A
    row inserted or deleted moves no other; equal samples fall on one side.

    Examples
    --------
    >>> X = np.arange(2000).reshape(1000, 2)
    >>> side = held_out_rows(X, 0.2)
    >>> bool(np.array_equal(held_out_rows(X[:500], 0.2), side[:500])), int(side.sum())
    (True, 184)
    """
    from poisonproof.partition import sample_digests

    digests = sample_digests(X if groups is None else groups)
    hashed = b"".join(hashlib.sha256(DOMAIN + bytes(digest)).digest()[:8] for digest in digests)
    numbers = np.frombuffer(hashed, dtype="<u8")
    # An exact comparison of integers: no row sits on a rounding error.
    return np.asarray(numbers < np.uint64(int(share * 2**63) * 2))
