"""A training set cut into partitions, each in canonical order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.partition.values import take_canonical

__all__ = ["Partition", "PartitionedData"]


@dataclass(frozen=True)
class Partition:
    """The rows of one partition, as its member sees them.

    Attributes
    ----------
    index : int
        Number of the partition, in [0, k).
    X : array, sparse matrix or DataFrame, shape (m_i, ...)
        Samples in canonical values and canonical order.
    y : ndarray of shape (m_i,)
        Class indices.
    sample_weight : ndarray of shape (m_i,) or None
        Weights, if the training set has any.
    """

    index: int
    X: Any
    y: NDArray[np.int64]
    sample_weight: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class PartitionedData:
    """A training set and the canonical order of its rows, partition after partition.

    The samples stay in the caller's container; a partition is gathered and brought to canonical
    values when it is asked for, so the whole training set is never copied.

    Attributes
    ----------
    X : array, sparse matrix or DataFrame, shape (m, ...)
        All samples, in the caller's order and container.
    y : ndarray of shape (m,)
        Class indices, in the caller's order.
    order : ndarray of shape (m,)
        Row numbers, sorted by partition, sample, label and weight.
    offsets : ndarray of shape (k + 1,)
        Partition i holds the rows ``order[offsets[i]:offsets[i + 1]]``.
    sample_weight : ndarray of shape (m,) or None
        Weights, in the caller's order.
    """

    X: Any
    y: NDArray[np.int64]
    order: NDArray[np.intp]
    offsets: NDArray[np.intp]
    sample_weight: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Return the number of partitions, k."""
        return len(self.offsets) - 1

    @property
    def n_rows(self) -> int:
        """The number of training rows, m."""
        return len(self.order)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition, shape (k,)."""
        return np.diff(self.offsets)

    def rows(self, index: int) -> NDArray[np.intp]:
        """Return the caller's row numbers of partition `index`, in canonical order."""
        return self.order[self.offsets[index] : self.offsets[index + 1]]

    def __getitem__(self, index: int) -> Partition:
        """Gather partition `index` in canonical values and order."""
        rows = self.rows(index)
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return Partition(index, take_canonical(self.X, rows), self.y[rows], weight)

    def __iter__(self) -> Iterator[Partition]:
        return (self[index] for index in range(len(self)))
