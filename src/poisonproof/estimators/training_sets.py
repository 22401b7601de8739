"""The rows a model was trained on, wherever they are, one partition at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition import ContentHash, PartitionedData, sample_digests
from poisonproof.partition.canonical import digests_among
from poisonproof.partition.shards import Shard, gathered, shard_of
from poisonproof.store import Item, ModelReader, decode_rows, encode_rows

__all__ = ["ChangedRows", "HeldRows", "KeptRows", "TrainingSet", "seen_rows", "shards_for_others"]


class TrainingSet(ABC):
    """k partitions that can be asked for singly."""

    @property
    @abstractmethod
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition, shape (k,)."""

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether the rows have weights."""

    @abstractmethod
    def shard(self, index: int) -> Shard:
        """Return the rows of one partition, checked against their digests."""

    @property
    def in_store(self) -> bool:
        """Whether the rows come from a store that keeps them."""
        return False

    def raw_shard(self, index: int) -> Shard:
        """Return the rows of one partition for someone who checks them himself."""
        return self.shard(index)

    def item(self, index: int) -> Item:
        """Return the rows of one partition as a store keeps them."""
        return encode_rows(index, self.shard(index))

    def whole(self) -> PartitionedData:
        """Return all rows together."""
        k = len(self.sizes)
        return gathered({index: self.shard(index) for index in range(k)}, k)

    def changed(self, shards: Mapping[int, Shard]) -> TrainingSet:
        """Return a training set in which some partitions are others."""
        return ChangedRows(self, dict(shards))


@dataclass(frozen=True)
class HeldRows(TrainingSet):
    """Rows in memory, in the caller's container."""

    data: PartitionedData

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        return self.data.sizes

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.data.sample_weight is not None

    def shard(self, index: int) -> Shard:
        """Gather one partition; the caller may have overwritten the array it lies in."""
        shard = shard_of(self.data, index)
        if not shard.is_intact():
            raise InvalidRowsError(
                "the training rows were changed in place after they were fitted. Fit again."
            )
        return shard

    def raw_shard(self, index: int) -> Shard:
        """Gather one partition, unchecked."""
        return shard_of(self.data, index)

    def whole(self) -> PartitionedData:
        """Return all rows together."""
        return self.data


@dataclass(frozen=True)
class KeptRows(TrainingSet):
    """Rows in a store, read one partition at a time."""

    reader: ModelReader

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        return np.asarray(self.reader.manifest.partition_sizes, dtype=np.intp)

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return "weight" in self.item(0).tensors

    @property
    def in_store(self) -> bool:
        """They are kept."""
        return True

    def shard(self, index: int) -> Shard:
        """Read one partition, whose digest is checked."""
        return decode_rows(self.item(index), f"partition {index} of {self.reader.place.path}")

    def item(self, index: int) -> Item:
        """Return the rows of one partition as they are kept."""
        return self.reader.rows(index)


@dataclass(frozen=True)
class ChangedRows(TrainingSet):
    """A training set of which some partitions have been replaced."""

    base: TrainingSet
    shards: dict[int, Shard]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        sizes = np.array(self.base.sizes)
        for index, shard in self.shards.items():
            sizes[index] = len(shard)
        return sizes

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.base.weighted

    @property
    def in_store(self) -> bool:
        """Whether the rows that did not change are kept."""
        return self.base.in_store

    def shard(self, index: int) -> Shard:
        """Return the rows of one partition."""
        return self.shards[index] if index in self.shards else self.base.shard(index)

    def item(self, index: int) -> Item:
        """Return the rows of one partition as a store keeps them."""
        return super().item(index) if index in self.shards else self.base.item(index)

    def changed(self, shards: Mapping[int, Shard]) -> TrainingSet:
        """Return a training set in which some more partitions are others."""
        return ChangedRows(self.base, self.shards | dict(shards))


def shards_for_others(
    classifier: Any, rows: TrainingSet, which: Sequence[int]
) -> Callable[[int], Shard]:
    """Return a function that reads a partition as it is sent to another process.

    Features that are learned from all samples may need all of them, so they are mapped here.
    """
    if not classifier._features_see_all_rows():
        return rows.raw_shard
    data: PartitionedData = classifier._member_data(rows.whole(), which)
    return lambda index: shard_of(data, index)


def seen_rows(classifier: Any, X: Any) -> NDArray[np.bool_] | None:
    """Return which samples `classifier` was trained on, whatever their labels; None if unknown.

    It is known where the training rows are held or kept. A list of their digests would do, too, but
    would tell everybody who has the model who is in it, so none is stored.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from poisonproof import DPAClassifier
    >>> fitted = DPAClassifier(GaussianNB(), n_partitions=2).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    >>> seen_rows(fitted, [[1], [5]])
    array([ True, False])
    """
    rows, digests = getattr(classifier, "rows_", None), sample_digests(X)
    if hasattr(classifier, "digests_"):  # votes of neighbours
        return digests_among(digests, [classifier.digests_])
    if not isinstance(rows, TrainingSet):
        return None
    partitioner = classifier.partitioner_
    places: Sequence[int] = range(len(rows.sizes))
    if isinstance(partitioner, ContentHash):
        places = np.unique(partitioner.assign_digests(digests)).tolist()
    shards = (rows.raw_shard(index) for index in places if rows.sizes[index])
    return digests_among(digests, (shard.digests for shard in shards))
