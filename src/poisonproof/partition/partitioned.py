"""Training sets cut into partitions, each a multiset of rows in canonical order."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import as_container, stacked, take_rows
from poisonproof.partition.partitioners import ContentHash, Partitioner
from poisonproof.partition.values import Categories, take_canonical, with_categories

Weights = NDArray[np.float64] | None


def partition_data(
    X: Any,
    y: NDArray[np.int64],
    partitioner: Partitioner,
    groups: Any = None,
    sample_weight: Weights = None,
) -> PartitionedData:
    """Cut a training set that was checked into partitions.

    Parameters
    ----------
    X : array, sparse matrix, frame, series or sequence of m samples
        The samples. Nothing is copied but what `as_container` converts.
    y : ndarray of int64 of shape (m,)
        Class indices.
    partitioner : Partitioner
        The rule, with its number of partitions.
    groups : array or sequence of m identities, optional
        Who contributed each row, for `GroupHash`.
    sample_weight : ndarray of float64 of shape (m,), optional
        Weights: finite numbers, and no zero with a sign.

    Returns
    -------
    PartitionedData
        The partitions, in canonical order.

    Raises
    ------
    InvalidInputError
        If a row has no canonical form or no partition, or if groups are missing where they decide.

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
    digests = sample_digests(X)
    if isinstance(partitioner, ContentHash):
        assignment = partitioner.assign_digests(digests)
    else:
        assignment = partitioner.assign(X, groups)
    y = np.asarray(y, dtype=np.int64)
    return PartitionedData.build(
        X, y, assignment, digests, partitioner.k, sample_weight=sample_weight
    )


def canonical_order(
    assignment: NDArray[np.int64],
    digests: NDArray[np.uint8],
    y: NDArray[np.int64],
    sample_weight: Weights,
    n_partitions: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Sort rows by partition, then sample digest, then label, then weight.

    Return row numbers and offsets: partition i is ``order[offsets[i]:offsets[i + 1]]``.

    Guarantee
    ---------
    Rows that tie are equal in everything a member sees, so the caller's order cannot matter.
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
    digests: NDArray[np.uint8], y: NDArray[np.int64], sample_weight: Weights
) -> NDArray[np.void]:
    """Return fixed-width bytes that are equal for rows of equal samples, labels and weights."""
    parts = [digests, y.astype(">i8").view(np.uint8).reshape(-1, 8)]
    if sample_weight is not None:
        parts.append(sample_weight.astype(">f8").view(np.uint8).reshape(-1, 8))
    table = np.ascontiguousarray(np.hstack(parts))
    return table.view(f"V{table.shape[1]}").ravel()


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
    sample_weight: Weights

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class PartitionedData:
    """A training set and the canonical order of its rows, partition after partition.

    The samples stay in the caller's container; a partition is gathered and brought to canonical
    values when it is needed, so the whole training set is never copied.

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
    categories : mapping
        The declared categories of columns that members see as categories.
    origin : ndarray of shape (m,) or None
        In a grid, where rows are blocks of rows: the number of the whole row.
    """

    X: Any
    y: NDArray[np.int64]
    order: NDArray[np.intp]
    offsets: NDArray[np.intp]
    sample_weight: Weights = None
    digests: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 32), np.uint8))
    categories: Categories = field(default_factory=dict)
    origin: NDArray[np.intp] | None = None

    @classmethod
    def build(
        cls,
        X: Any,
        y: NDArray[np.int64],
        assignment: NDArray[np.int64],
        digests: NDArray[np.uint8],
        n_partitions: int,
        *,
        sample_weight: Weights = None,
        origin: NDArray[np.intp] | None = None,
    ) -> PartitionedData:
        """Sort rows whose partitions and digests are known into canonical order."""
        order, offsets = canonical_order(assignment, digests, y, sample_weight, n_partitions)
        return cls(X, y, order, offsets, sample_weight, digests, origin=origin)

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

    @property
    def assignment(self) -> NDArray[np.int64]:
        """The partition of each row, in the caller's order, shape (m,)."""
        partitions = np.empty(self.n_rows, dtype=np.int64)
        partitions[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return partitions

    def rows(self, index: int) -> NDArray[np.intp]:
        """Return the caller's row numbers of partition `index`, in canonical order."""
        return self.order[self.offsets[index] : self.offsets[index + 1]]

    def __getitem__(self, index: int) -> Partition:
        """Gather partition `index` in canonical values and order."""
        rows = self.rows(index)
        X = with_categories(take_canonical(self.X, rows), self.categories)
        return Partition(index, X, self.y[rows], self.weights_of(rows))

    def __iter__(self) -> Iterator[Partition]:
        return (self[index] for index in range(len(self)))

    def weights_of(self, rows: NDArray[np.intp]) -> Weights:
        """Return the weights of some rows, None if there are none."""
        return _taken(self.sample_weight, rows)

    def shard(self, index: int) -> Shard:
        """Return the rows of one partition, in the container they came in."""
        return Shard(as_container(self.X), self.y, self.sample_weight, self.digests).take(
            self.rows(index)
        )

    def only(self, which: Sequence[int]) -> PartitionedData:
        """Return the rows of the partitions `which` alone; the other partitions are empty."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[list(which)] = True
        order = self.order[np.repeat(chosen, self.sizes)]
        if len(order) == len(self.order):
            return self
        kept = np.sort(order)
        return PartitionedData(
            take_rows(as_container(self.X), kept),
            self.y[kept],
            np.searchsorted(kept, order),
            np.concatenate([[0], np.cumsum(np.where(chosen, self.sizes, 0))]),
            self.weights_of(kept),
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
        keys = row_keys(self.digests[rows], self.y[rows], self.weights_of(rows))
        data, size = memoryview(keys.tobytes()), keys.itemsize
        kind = "plain" if self.sample_weight is None else "weighted"
        start = f"poisonproof.partition1 {kind} ".encode()
        return [
            hashlib.sha256(start + data[first * size : last * size]).hexdigest()
            for first, last in itertools.pairwise(offsets.tolist())
        ]


@dataclass(frozen=True)
class Shard:
    """The rows of one partition, in canonical order, apart from the rest of the training set."""

    X: Any
    y: NDArray[np.int64]
    sample_weight: Weights
    digests: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def build(
        cls,
        X: Any,
        y: NDArray[np.int64],
        sample_weight: Weights = None,
        digests: NDArray[np.uint8] | None = None,
    ) -> Shard:
        """Put rows into canonical order; their digests are computed if they are not given."""
        X = as_container(X)
        digests = sample_digests(X) if digests is None else digests
        here = np.zeros(len(y), dtype=np.int64)
        order, _ = canonical_order(here, digests, y, sample_weight, 1)
        return cls(X, y, sample_weight, digests).take(order)

    def take(self, rows: NDArray[np.intp]) -> Shard:
        """Return some of the rows, in the order given."""
        weight = _taken(self.sample_weight, rows)
        return Shard(take_rows(self.X, rows), self.y[rows], weight, self.digests[rows])

    def digest(self) -> str:
        """Return the digest of the partition, as `PartitionedData.digest` does."""
        return gathered({0: self}, 1).digest(0)

    def is_intact(self) -> bool:
        """Return whether the samples still have the digests they had."""
        return np.array_equal(sample_digests(self.X), self.digests)


def gathered(shards: Mapping[int, Shard], n_partitions: int) -> PartitionedData:
    """Return a training set of at least one partition out of k; all others are empty."""
    parts = [shards[index] for index in sorted(shards)]
    sizes = np.zeros(n_partitions, dtype=np.intp)
    sizes[sorted(shards)] = [len(part) for part in parts]
    weights = [part.sample_weight for part in parts]
    return PartitionedData(
        stacked([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.arange(sizes.sum()),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
        None if any(w is None for w in weights) else np.concatenate(weights),  # type: ignore[arg-type]
        np.concatenate([part.digests for part in parts]),
    )


def _taken(weight: Weights, rows: NDArray[np.intp]) -> Weights:
    return None if weight is None else weight[rows]
