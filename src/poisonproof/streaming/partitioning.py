"""From a source to partitions on disk, in one pass and bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from sklearn.utils import get_tags

from poisonproof.datasets import RowProblem
from poisonproof.estimators.training_rows import check_training_rows
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition import ContentHash, make_partitioner
from poisonproof.partition.base import Partitioner
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.shards import Shard
from poisonproof.progress import make_progress
from poisonproof.streaming.chunks import Chunk, RowSource
from poisonproof.streaming.runs import RunWriter
from poisonproof.streaming.sharded import ShardedRows

__all__ = ["MEMORY", "Rejected", "partition_stream"]

MEMORY = 2**30
"""Default bound for what partitioning takes, Python and its libraries included."""

LEAST_MEMORY = 2**28
RUN_SHARE, CHUNK_SHARE = 10, 64
"""A run takes a tenth of the memory, twice while it is sorted; a chunk one part in 64, several
times while it is read, checked and hashed."""


@dataclass
class Rejected:
    """Rows that were left out because they did not fit: how many, and the first."""

    count: int = 0
    first: tuple[str, RowProblem] | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows that a chunk left out."""
        if chunk.problems and self.first is None:
            self.first = chunk.where, chunk.problems[0]
        self.count += len(chunk.problems)


def partition_stream(
    classifier: Any, source: RowSource, folder: Path, *, memory: int = MEMORY
) -> ShardedRows:
    """Read a source once and write its rows to `folder`, sorted by partition.

    Parameters
    ----------
    classifier : DPAClassifier
        Says how rows are checked, labelled and partitioned. Its `classes` are declared. It gets
        ``classes_``, ``partitioner_``, ``n_features_in_``, ``n_dropped_`` and ``rejected_``.
    source : RowSource
        The rows.
    folder : Path
        An empty folder; the result reads from it.
    memory : int
        About how many bytes of memory may be used.

    Returns
    -------
    ShardedRows
        The training set, to be asked for one partition at a time.

    Guarantee
    ---------
    Partitions, the order of rows in them and their digests are those of `partition_data` on the
    same rows in memory. Files, row groups, chunks and `memory` have no influence.
    """
    if classifier.classes is None:
        raise GuaranteeError(
            "Streamed rows need a declared label set: classes=[...]. It cannot be found while rows "
            "are read, and an attacker would take part in it."
        )
    partitioner = make_partitioner(classifier.partitioner, classifier.n_partitions)
    if not partitioner.rowwise:
        raise InvalidInputError(
            f"The partitioner {partitioner.name!r} looks at all rows before it places one, so rows "
            "cannot be streamed. Use 'content', 'group' or 'pixel_sum'."
        )
    if memory < LEAST_MEMORY:
        raise InvalidInputError(
            f"memory is at least {LEAST_MEMORY} bytes, which Python and its libraries take. "
            f"Got {memory}."
        )
    classifier.partitioner_, classifier.n_dropped_ = partitioner, 0
    classifier.rejected_ = Rejected()
    writer = RunWriter(folder, partitioner.k, memory // RUN_SHARE)
    progress = make_progress(classifier.verbose)
    progress.start(source.total, "Partitioning")
    try:
        known: NDArray[Any] | None = None
        for chunk in source.chunks(
            memory // CHUNK_SHARE,
            allow_missing=bool(get_tags(classifier).input_tags.allow_nan),
            invalid_rows=classifier.invalid_rows,
        ):
            classifier.rejected_.add(chunk)
            if len(chunk.y):
                known = _place(classifier, chunk, known, partitioner, writer)
            progress.advance(chunk.amount)
    finally:
        progress.stop()
    return writer.finish()


def _place(
    classifier: Any,
    chunk: Chunk,
    known: NDArray[Any] | None,
    partitioner: Partitioner,
    writer: RunWriter,
) -> NDArray[Any]:
    """Check and write the rows of a chunk; return the label set."""
    groups = chunk.groups if partitioner.name == "group" else None
    try:
        rows = check_training_rows(
            classifier, chunk.X, chunk.y, groups, chunk.sample_weight, classes=known
        )
        classifier.n_dropped_ += rows.n_dropped
        if len(rows.y):
            digests = sample_digests(rows.X)
            partitions = (
                partitioner.assign_digests(digests)
                if isinstance(partitioner, ContentHash)
                else partitioner.assign(rows.X, rows.groups)
            )
            writer.add(Shard(rows.X, rows.y, rows.sample_weight, digests), partitions)
    except InvalidInputError as error:
        raise type(error)(f"{chunk.where} (counted as row 0): {error}") from error
    classifier.classes_ = rows.classes
    return rows.classes
