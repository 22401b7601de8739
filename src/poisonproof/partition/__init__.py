"""From rows to partitions: who trains on what, and in which order."""

from poisonproof.partition.base import Partitioner
from poisonproof.partition.canonical import canonical_bytes, sample_digests
from poisonproof.partition.choose import make_partitioner, partitioner_from_specification
from poisonproof.partition.content_hash import ContentHash
from poisonproof.partition.group_hash import GroupHash
from poisonproof.partition.order import canonical_order, row_keys
from poisonproof.partition.partitioned import Partition, PartitionedData, partition_data
from poisonproof.partition.pixel_sum import PixelSum
from poisonproof.partition.sorted_index import SortedIndex
from poisonproof.partition.values import n_rows, take_canonical

__all__ = [
    "ContentHash",
    "GroupHash",
    "Partition",
    "PartitionedData",
    "Partitioner",
    "PixelSum",
    "SortedIndex",
    "canonical_bytes",
    "canonical_order",
    "make_partitioner",
    "n_rows",
    "partition_data",
    "partitioner_from_specification",
    "row_keys",
    "sample_digests",
    "take_canonical",
]
