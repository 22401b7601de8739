"""Runs: as many rows as memory holds, sorted by partition and written to disk.

A run is two files: `keys` (digest, label and weight of every row) and `samples`. The rows of one
partition stand together in each run, so a partition is one stretch per run, and k partitions need
neither k open files nor k buffers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.shards import Shard
from poisonproof.streaming.samples import SampleFiles, sample_files
from poisonproof.streaming.sharded import ShardedRows, key_type

__all__ = ["RunWriter"]


class RunWriter:
    """Collects rows whose partitions are known, and writes a run whenever there are enough.

    Parameters
    ----------
    folder : Path
        Where to write.
    name : str
        How the names of the runs begin; no two writers in a folder have the same.
    n_partitions : int
        The number of partitions, k.
    run_bytes : int
        How much memory the rows of a run may take.
    samples : SampleFiles, optional
        How samples are kept; by default as the first ones say.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        n_partitions: int,
        run_bytes: int,
        samples: SampleFiles | None = None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._runs: list[str] = []
        self._k = n_partitions
        self._run_bytes = run_bytes
        self._parts: list[tuple[Shard, NDArray[np.int64]]] = []
        self._held = 0
        self._offsets: list[NDArray[np.uint32]] = []
        self._samples = samples
        self._weighted: bool | None = None

    def add(self, rows: Shard, partitions: NDArray[np.int64]) -> None:
        """Take rows in any order, with the partition of each."""
        if self._weighted is None:
            self._samples = self._samples or sample_files(rows.X)
            self._weighted = rows.sample_weight is not None
        assert self._samples is not None
        if not self._samples.fits(rows.X) or self._weighted != (rows.sample_weight is not None):
            raise InvalidRowsError(
                "All chunks of a training set must have the same columns, types and weights."
            )
        self._parts.append((rows, partitions))
        self._held += self._samples.n_bytes(rows.X) + rows.digests.nbytes + 16 * len(rows)
        if self._held >= self._run_bytes:
            self._write()

    def finish(self) -> ShardedRows | None:
        """Write what is left and return the training set; None if it has no rows."""
        self._write()
        if self._samples is None or self._weighted is None:
            return None
        return ShardedRows(
            self._folder,
            tuple(self._runs),
            np.array(self._offsets),
            self._samples,
            bool(self._weighted),
        )

    def _write(self) -> None:
        if not self._parts or self._samples is None:
            return
        partitions = np.concatenate([part for _, part in self._parts])
        counts = np.bincount(partitions, minlength=self._k)
        narrow = partitions.astype(np.uint16 if self._k <= 2**16 else np.int64)
        order = np.argsort(narrow, kind="stable")
        run = f"{self._name}-{len(self._runs)}"
        keys = np.empty(len(order), dtype=key_type(weighted=bool(self._weighted)))
        keys["digest"] = np.concatenate([rows.digests for rows, _ in self._parts])
        keys["y"] = np.concatenate([rows.y for rows, _ in self._parts])
        if self._weighted:
            weights = [w for rows, _ in self._parts if (w := rows.sample_weight) is not None]
            keys["weight"] = np.concatenate(weights)
        keys[order].tofile(self._folder / f"{run}.keys")
        samples = [rows.X for rows, _ in self._parts]
        self._parts, self._held = [], 0  # `samples` alone holds them now
        self._samples.write(self._folder / f"{run}.samples", samples, order)
        self._runs.append(run)
        self._offsets.append(np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32))
