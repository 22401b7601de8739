"""The rows a model was trained on, wherever they are, one partition at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.canonical import digests_among, sample_digests
from poisonproof.partition.containers import n_rows
from poisonproof.partition.grids import Grid
from poisonproof.partition.partitioned import PartitionedData, Shard, gathered
from poisonproof.partition.partitioners import ContentHash
from poisonproof.store.items import decode_rows, encode_rows
from poisonproof.store.manifest import Item, ModelReader


@dataclass(frozen=True)
class TrainingSet:
    """k partitions of training rows: in memory, in a store, or in shards on disk."""

    source: Any
    others: Mapping[int, Shard] = field(default_factory=dict)  # which an update has replaced

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition, shape (k,)."""
        kept = isinstance(self.source, ModelReader)
        sizes = np.array(self.source.manifest.partition_sizes if kept else self.source.sizes)
        for index, shard in self.others.items():
            sizes[index] = len(shard)
        return sizes

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        if isinstance(self.source, PartitionedData):
            return self.source.sample_weight is not None
        if isinstance(self.source, ModelReader):
            return "weight" in self.source.rows(0).tensors
        return bool(self.source.weighted)

    @property
    def in_store(self) -> bool:
        """Whether the rows come from a store that keeps them."""
        return isinstance(self.source, ModelReader)

    def shard(self, index: int) -> Shard:
        """Return the rows of one partition, checked against their digests."""
        if index in self.others:
            return self.others[index]
        if isinstance(self.source, ModelReader):
            name = f"partition {index} of {self.source.place.path}"
            return decode_rows(self.source.rows(index), name)
        shard: Shard = self.source.shard(index)
        if isinstance(self.source, PartitionedData) and not shard.is_intact():
            # The array it lies in is the caller's.
            raise InvalidRowsError(
                "the training rows were changed in place after they were fitted. Fit again."
            )
        return shard

    def items(self, which: Sequence[int]) -> Iterator[Item]:
        """Return the rows of some partitions as a store keeps them."""
        for index in which:
            if isinstance(self.source, ModelReader) and index not in self.others:
                yield self.source.rows(index)
            else:
                yield encode_rows(index, self.shard(index))

    def whole(self) -> PartitionedData:
        """Return all rows together."""
        if isinstance(self.source, PartitionedData) and not self.others:
            return self.source
        k = len(self.sizes)
        return gathered({index: self.shard(index) for index in range(k)}, k)

    def changed(self, shards: Mapping[int, Shard]) -> TrainingSet:
        """Return a training set in which some partitions are others."""
        return replace(self, others={**self.others, **shards})


def shards_for_others(classifier: Any, data: Any, which: Sequence[int]) -> Callable[[int], Shard]:
    """Return a function that reads a partition as it is sent to another process.

    Features that are learned from all samples may need all of them, so they are mapped here.
    """
    ready = data if classifier.context_ is None else classifier._member_data(data, which)
    shard: Callable[[int], Shard] = ready.shard
    return shard


def seen_rows(classifier: Any, X: Any) -> NDArray[np.bool_] | None:
    """Return which samples `classifier` was trained on, whatever their labels; None if unknown.

    Digests of the rows are not stored for this: they would reveal who is in the training set.
    """
    rows, X = getattr(classifier, "rows_", None), classifier.encoded(X)
    if hasattr(classifier, "digests_"):  # votes of neighbours
        return digests_among(sample_digests(X), [classifier.digests_])
    if not isinstance(rows, TrainingSet):
        return None
    rule = classifier.partitioner_
    if isinstance(rule, Grid):
        found, asked = np.ones(n_rows(X), dtype=np.bool_), np.zeros(n_rows(X), dtype=np.bool_)
        for block, part in enumerate(rule.blocks.split(X)):
            usable = rule.usable(part)  # another row left nothing in this block
            cells = range(block * rule.k, (block + 1) * rule.k)
            known = (rows.shard(cell).digests for cell in cells if rows.sizes[cell])
            found &= ~usable | digests_among(sample_digests(part), known)
            asked |= usable
        return found & asked
    digests = sample_digests(X)
    places: Sequence[int] = range(len(rows.sizes))
    if isinstance(classifier.partitioner_, ContentHash):
        places = np.unique(classifier.partitioner_.assign_digests(digests)).tolist()
    shards = (rows.shard(index) for index in places if rows.sizes[index])
    return digests_among(digests, (shard.digests for shard in shards))
