"""From rows to partitions: who trains on what, and in which order."""

from __future__ import annotations

from poisonproof.partition.canonical import canonical_bytes, sample_digests
from poisonproof.partition.containers import n_rows
from poisonproof.partition.contributors import GroupHash, NamedSources, TimeBlocks
from poisonproof.partition.grids import Blocks, Grid
from poisonproof.partition.partitioned import (
    Partition,
    PartitionedData,
    partition_data,
)
from poisonproof.partition.partitioners import ContentHash, Partitioner, PixelSum, SortedIndex
from poisonproof.partition.values import take_canonical

__all__ = [
    "Blocks",
    "ContentHash",
    "Grid",
    "GroupHash",
    "NamedSources",
    "Partition",
    "PartitionedData",
    "Partitioner",
    "PixelSum",
    "SortedIndex",
    "TimeBlocks",
    "canonical_bytes",
    "n_rows",
    "partition_data",
    "sample_digests",
    "take_canonical",
]
