"""Training sets larger than memory: streamed from files, sorted into partitions on disk."""

from __future__ import annotations

from poisonproof.streaming.declared import DeclaredRows
from poisonproof.streaming.frames import FrameRows
from poisonproof.streaming.image_folders import ImageRows
from poisonproof.streaming.partitioning import partition_stream
from poisonproof.streaming.sharded import ShardedRows
from poisonproof.streaming.training import fit_stream

__all__ = [
    "DeclaredRows",
    "FrameRows",
    "ImageRows",
    "ShardedRows",
    "fit_stream",
    "partition_stream",
]
