"""A training set on disk, of which one partition at a time is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.estimators.training_sets import TrainingSet
from poisonproof.exceptions import InvalidRowsError, StoreError
from poisonproof.partition import PartitionedData
from poisonproof.partition.shards import Shard, stacked
from poisonproof.streaming.samples import SampleFiles

__all__ = ["ShardedRows", "key_type"]


def key_type(*, weighted: bool) -> np.dtype[Any]:
    """Return what is kept about a row besides its sample."""
    fields: list[Any] = [("digest", "u1", 32), ("y", "<i8")]
    return np.dtype([*fields, ("weight", "<f8")] if weighted else fields)


@dataclass(frozen=True, eq=False)
class ShardedRows(TrainingSet):
    """k partitions in a folder.

    Attributes
    ----------
    folder : Path
        Where the runs lie; the rows are there as long as it is.
    runs : tuple of str
        Their names, R of them.
    offsets : ndarray of shape (R, k + 1)
        Partition i is the rows ``offsets[r, i]:offsets[r, i + 1]`` of each run r.
    samples : SampleFiles
        How samples are kept.
    has_weights : bool
        Whether the rows have weights.
    """

    folder: Path
    runs: tuple[str, ...]
    offsets: NDArray[np.uint32]
    samples: SampleFiles
    has_weights: bool

    def __len__(self) -> int:
        """Return the number of partitions, k."""
        return int(self.offsets.shape[1]) - 1

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        sizes: NDArray[np.intp] = np.diff(self.offsets.astype(np.intp).sum(axis=0))
        return sizes

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.has_weights

    @cached_property
    def row_bytes(self) -> int:
        """About how much memory a row takes."""
        written = sum(file.stat().st_size for file in self.folder.glob("run-*"))
        return max(1, written // max(1, int(self.sizes.sum())))

    def joined(self, other: ShardedRows) -> ShardedRows:
        """Return the rows of both, which lie in the same folder and are of the same kind."""
        if self.samples != other.samples or self.weighted != other.weighted:
            raise InvalidRowsError(
                "All files of a training set must have the same columns, types and weights."
            )
        offsets = np.concatenate([self.offsets, other.offsets])
        return replace(self, runs=self.runs + other.runs, offsets=offsets)

    def shard(self, index: int) -> Shard:
        """Read one partition: one stretch of every run, in canonical order."""
        keys = self._keys(index, index + 1)
        spans = [(run, *self.offsets[run, index : index + 2].tolist()) for run in self._runs(index)]
        parts = [self.samples.read(self._file(run, "samples"), a, b) for run, a, b in spans]
        weight = keys["weight"].copy() if self.weighted else None
        shard = Shard.build(stacked(parts), keys["y"].copy(), weight, keys["digest"].copy())
        if not shard.is_intact():
            raise StoreError(
                f"The rows of partition {index} in {self.folder} are not those that were written "
                "there. Partition the training set again."
            )
        return shard

    def partition_digests(self, slab_bytes: int) -> list[str]:
        """Return the digest of every partition, as `PartitionedData.partition_digests` does.

        Parameters
        ----------
        slab_bytes : int
            How much may be read at a time; a partition that is larger is read whole.
        """
        digests: list[str] = []
        row = 2 * key_type(weighted=self.weighted).itemsize
        for first, last in self.slabs(slab_bytes // row):
            keys = self._keys(first, last)
            counts = np.diff(self.offsets[:, first : last + 1].astype(np.intp), axis=1)
            partitions = np.concatenate([np.repeat(np.arange(last - first), c) for c in counts])
            data = PartitionedData.build(
                None,
                keys["y"].copy(),
                partitions,
                keys["digest"].copy(),
                last - first,
                sample_weight=keys["weight"].copy() if self.weighted else None,
            )
            digests += data.partition_digests()
        return digests

    def slabs(self, n_rows: int) -> Iterator[tuple[int, int]]:
        """Yield consecutive partitions ``first:last`` of at most `n_rows` rows, at least one."""
        ends = np.cumsum(self.sizes)
        first = 0
        while first < len(self):
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + n_rows, side="right"))
            yield first, max(first + 1, last)
            first = max(first + 1, last)

    def _runs(self, index: int) -> list[int]:
        """Return the runs that hold rows of a partition; one that holds none if no run does."""
        runs = np.flatnonzero(self.offsets[:, index] < self.offsets[:, index + 1])
        return [int(run) for run in runs] or [0]

    def _keys(self, first: int, last: int) -> NDArray[Any]:
        kind = key_type(weighted=self.weighted)
        parts = []
        for run in range(len(self.offsets)):
            start, stop = int(self.offsets[run, first]), int(self.offsets[run, last])
            if stop > start:
                file, offset = self._file(run, "keys"), start * kind.itemsize
                parts.append(np.fromfile(file, kind, stop - start, offset=offset))
        return np.concatenate(parts) if parts else np.empty(0, kind)

    def _file(self, run: int, what: str) -> Path:
        return self.folder / f"{self.runs[run]}.{what}"
