"""A training set cut into partitions, each in canonical order."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.base import Partitioner
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import as_container, n_rows, take_rows
from poisonproof.partition.content_hash import ContentHash
from poisonproof.partition.order import canonical_order, row_keys
from poisonproof.partition.values import take_canonical

__all__ = ["Partition", "PartitionedData", "partition_data"]


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
    digests : ndarray of uint8 of shape (m, 32)
        Digests of the samples, in the caller's order; empty where nobody needs them.
    """

    X: Any
    y: NDArray[np.int64]
    order: NDArray[np.intp]
    offsets: NDArray[np.intp]
    sample_weight: NDArray[np.float64] | None = None
    digests: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 32), np.uint8))

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
        return Partition(index, take_canonical(self.X, rows), self.y[rows], self._weights_of(rows))

    def __iter__(self) -> Iterator[Partition]:
        return (self[index] for index in range(len(self)))

    @classmethod
    def build(
        cls,
        X: Any,
        y: NDArray[np.int64],
        assignment: NDArray[np.int64],
        digests: NDArray[np.uint8],
        n_partitions: int,
        *,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> PartitionedData:
        """Sort rows whose partitions and digests are known into canonical order."""
        order, offsets = canonical_order(assignment, digests, y, sample_weight, n_partitions)
        return cls(X, y, order, offsets, sample_weight, digests)

    @property
    def assignment(self) -> NDArray[np.int64]:
        """The partition of each row, in the caller's order, shape (m,)."""
        partitions = np.empty(self.n_rows, dtype=np.int64)
        partitions[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return partitions

    def only(self, which: Sequence[int]) -> PartitionedData:
        """Return the rows of the partitions `which` alone; the other partitions are empty."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[list(which)] = True
        order = self.order[np.repeat(chosen, self.sizes)]
        kept = np.sort(order)
        return PartitionedData(
            take_rows(as_container(self.X), kept),
            self.y[kept],
            np.searchsorted(kept, order),
            np.concatenate([[0], np.cumsum(np.where(chosen, self.sizes, 0))]),
            None if self.sample_weight is None else self.sample_weight[kept],
            self.digests[kept] if len(self.digests) else self.digests,
        )

    def digest(self, index: int) -> str:
        """Return a hexadecimal digest of partition `index` as a multiset of rows.

        It is equal for two training sets exactly if this partition holds the same samples, labels
        and weights, as often, in both.
        """
        return self._digests(self.rows(index), np.array([0, self.sizes[index]]))[0]

    def partition_digests(self) -> list[str]:
        """Return the digest of every partition."""
        return self._digests(self.order, self.offsets)

    def _digests(self, rows: NDArray[np.intp], offsets: NDArray[np.intp]) -> list[str]:
        if len(self.digests) != self.n_rows:
            raise InvalidInputError(
                "These partitions were made without digests of their samples. Make them with "
                "partition_data."
            )
        keys = row_keys(self.digests[rows], self.y[rows], self._weights_of(rows))
        data, size = memoryview(keys.tobytes()), keys.itemsize
        kind = "plain" if self.sample_weight is None else "weighted"
        start = f"poisonproof.partition1 {kind} ".encode()
        return [
            hashlib.sha256(start + data[first * size : last * size]).hexdigest()
            for first, last in itertools.pairwise(offsets.tolist())
        ]

    def _weights_of(self, rows: NDArray[np.intp]) -> NDArray[np.float64] | None:
        return None if self.sample_weight is None else self.sample_weight[rows]


def partition_data(
    X: Any,
    y: NDArray[np.int64],
    partitioner: Partitioner,
    groups: Any = None,
    sample_weight: Any = None,
) -> PartitionedData:
    """Cut a training set into partitions.

    Parameters
    ----------
    X : array, sparse matrix, frame, series or sequence of m samples
        The samples. Nothing is copied, except that sparse matrices become CSR.
    y : array of shape (m,)
        Class indices.
    partitioner : Partitioner
        The rule, with its number of partitions.
    groups : array or sequence of m identities, optional
        Who contributed each row, for `GroupHash`.
    sample_weight : array of shape (m,), optional
        Weights: finite numbers. Whether negative ones make sense is for the learner to say.

    Returns
    -------
    PartitionedData
        The partitions, in canonical order.

    Raises
    ------
    InvalidInputError
        If lengths differ, or a row, group or weight cannot be taken.

    Guarantee
    ---------
    Partition i depends on the multiset of its own rows, and for a `rowwise` partitioner on nothing
    else.

    Examples
    --------
    >>> X, y = np.array([[1], [2], [3]]), np.array([0, 1, 0])
    >>> data = partition_data(X, y, ContentHash(n_partitions=2))
    >>> int(data.sizes.sum())
    3
    """
    X = as_container(X)
    y = _labels(y, n_rows(X))
    weight = None if sample_weight is None else _weights(sample_weight, n_rows(X))
    digests = sample_digests(X)
    if isinstance(partitioner, ContentHash):
        assignment = partitioner.assign_digests(digests)
    else:
        assignment = partitioner.assign(X, groups)
    return PartitionedData.build(X, y, assignment, digests, partitioner.k, sample_weight=weight)


def _labels(y: Any, m: int) -> NDArray[np.int64]:
    labels = np.asarray(y)
    if labels.shape != (m,) or labels.dtype.kind not in "biu":
        raise InvalidInputError(
            f"y must hold {m} class indices, one per row of X, but it has shape {labels.shape} and "
            f"dtype {labels.dtype}."
        )
    return labels.astype(np.int64)


def _weights(sample_weight: Any, m: int) -> NDArray[np.float64]:
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError("sample_weight must hold numbers.") from None
    if weights.shape != (m,):
        raise InvalidInputError(
            f"sample_weight must hold {m} numbers, one per row of X, but it has shape "
            f"{weights.shape}."
        )
    if not np.isfinite(weights).all():
        row = int(np.flatnonzero(~np.isfinite(weights))[0])
        raise InvalidRowsError(f"Row {row} has the weight {weights[row]}. Weights must be finite.")
    return weights + 0.0  # one zero: -0.0 and 0.0 would tie with different bits
