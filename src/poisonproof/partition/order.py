"""The canonical order of the rows: by partition, sample, label and weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["canonical_order", "row_keys"]


def canonical_order(
    assignment: NDArray[np.int64],
    digests: NDArray[np.uint8],
    y: NDArray[np.int64],
    sample_weight: NDArray[np.float64] | None,
    n_partitions: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Sort rows by partition, then sample digest, then label, then weight.

    Parameters
    ----------
    assignment : ndarray of shape (m,)
        The partition of each row.
    digests : ndarray of uint8 of shape (m, 32)
        The digest of each sample, compared as a string of bytes.
    y : ndarray of shape (m,)
        The label of each row.
    sample_weight : ndarray of shape (m,) or None
        The weight of each row.
    n_partitions : int
        The number of partitions, k.

    Returns
    -------
    order : ndarray of shape (m,)
        Row numbers.
    offsets : ndarray of shape (k + 1,)
        Partition i is ``order[offsets[i]:offsets[i + 1]]``.

    Guarantee
    ---------
    Rows that tie are equal in everything a member sees, so the caller's order cannot matter.

    Examples
    --------
    >>> digests = np.zeros((3, 32), dtype=np.uint8)
    >>> canonical_order(np.array([1, 0, 1]), digests, np.array([5, 5, 4]), None, 2)
    (array([1, 2, 0]), array([0, 1, 3]))
    """
    words = np.ascontiguousarray(digests).view(">u8").astype(np.uint64)
    # Digests rarely share their first 64 bits, so one word sorts nearly all rows.
    order = np.argsort(words[:, 0])
    narrow = assignment.astype(np.uint16 if n_partitions <= 2**16 else np.int64)
    order = order[np.argsort(narrow[order], kind="stable")]
    partitions, first_words = assignment[order], words[order, 0]
    same = (partitions[1:] == partitions[:-1]) & (first_words[1:] == first_words[:-1])
    if same.any():
        tied = np.zeros(len(order), dtype=bool)
        tied[1:] = same
        tied[:-1] |= same
        rows = order[tied]
        keys = [y[rows], *words[rows].T[::-1], assignment[rows]]
        if sample_weight is not None:
            keys.insert(0, sample_weight[rows])
        order[tied] = rows[np.lexsort(keys)]
    counts = np.bincount(assignment, minlength=n_partitions)
    return order, np.concatenate([[0], np.cumsum(counts)])


def row_keys(
    digests: NDArray[np.uint8], y: NDArray[np.int64], sample_weight: NDArray[np.float64] | None
) -> NDArray[np.void]:
    """Return what identifies each row: its sample, label and weight, as fixed-width bytes.

    Parameters
    ----------
    digests : ndarray of uint8 of shape (m, 32)
        The digest of each sample.
    y : ndarray of shape (m,)
        The label of each row.
    sample_weight : ndarray of shape (m,) or None
        The weight of each row, with one zero.

    Returns
    -------
    ndarray of void of shape (m,)
        Equal for rows that a partition cannot tell apart.

    Examples
    --------
    >>> keys = row_keys(np.zeros((2, 32), dtype=np.uint8), np.array([1, 1]), None)
    >>> bool(keys[0] == keys[1])
    True
    """
    parts = [digests, y.astype(">i8").view(np.uint8).reshape(-1, 8)]
    if sample_weight is not None:
        parts.append(sample_weight.astype(">f8").view(np.uint8).reshape(-1, 8))
    table = np.ascontiguousarray(np.hstack(parts))
    return table.view(f"V{table.shape[1]}").ravel()
