"""From a source to partitions on disk, in one pass and bounded memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed, effective_n_jobs
from joblib.externals.loky import get_reusable_executor
from numpy.typing import NDArray
from sklearn.utils import get_tags

from poisonproof.datasets import RowProblem
from poisonproof.estimators.training_rows import check_training_rows
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition import ContentHash, make_partitioner
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.shards import Shard
from poisonproof.progress import make_progress, reporting
from poisonproof.streaming.chunks import Chunk, RowSource
from poisonproof.streaming.runs import RunWriter
from poisonproof.streaming.sharded import ShardedRows

__all__ = ["MEMORY", "Rejected", "partition_stream"]

MEMORY = 2**30
"""Default bound for what partitioning takes, Python and its libraries included."""

LEAST_MEMORY = 2**28
RUN_SHARE, CHUNK_SHARE = 32, 512
"""A run takes one part in 32 of the memory, twice while it is sorted; a chunk one part in 512,
many times while it is read, checked and hashed. Larger ones are not faster."""

PARTS_PER_WORKER = 8
"""So many tasks per worker process: they end at about the same time, and the bar moves."""


@dataclass
class Rejected:
    """Rows that were left out because they did not fit: how many, and the first."""

    count: int = 0
    first: tuple[str, RowProblem] | None = None

    def add(self, where: str, problems: tuple[RowProblem, ...]) -> None:
        """Count rows that were left out."""
        if problems and self.first is None:
            self.first = where, problems[0]
        self.count += len(problems)


class Part(NamedTuple):
    """What became of a part of a source."""

    rows: ShardedRows | None
    fitted: dict[str, Any]
    n_dropped: int
    rejected: Rejected
    amount: int


def partition_stream(
    classifier: Any, source: RowSource, folder: Path, *, memory: int = MEMORY
) -> ShardedRows:
    """Read a source once and write its rows to `folder`, sorted by partition.

    Parameters
    ----------
    classifier : DPAClassifier
        Says how rows are checked, labelled and partitioned. Its `classes` are declared. It gets
        ``classes_``, ``partitioner_``, ``n_features_in_``, ``n_dropped_`` and ``rejected_``. With
        `n_jobs`, as many processes read files of a folder.
    source : RowSource
        The rows.
    folder : Path
        An empty folder; the result reads from it.
    memory : int
        About how many bytes of memory may be used, by all processes together.

    Returns
    -------
    ShardedRows
        The training set, to be asked for one partition at a time.

    Guarantee
    ---------
    Partitions, the order of rows in them and their digests are those of `partition_data` on the
    same rows in memory. Files, row groups, chunks, processes and `memory` have no influence.
    """
    _check(classifier, memory)
    jobs = max(1, int(effective_n_jobs(classifier.n_jobs)))
    rows: ShardedRows | None = None
    classifier.n_dropped_, classifier.rejected_ = 0, Rejected()
    with reporting(make_progress(classifier.verbose), source.total, "Partitioning") as progress:
        parts = _parts(classifier, source, folder, memory, jobs, progress.advance)
        # Closed here: left to the garbage collector, it could stop workers of a later computation.
        with closing(parts):
            for part in parts:
                vars(classifier).update(part.fitted)
                classifier.n_dropped_ += part.n_dropped
                classifier.rejected_.count += part.rejected.count
                classifier.rejected_.first = classifier.rejected_.first or part.rejected.first
                if part.rows is not None:
                    rows = part.rows if rows is None else rows.joined(part.rows)
    if rows is None:
        raise InvalidInputError("The source holds no training rows.")
    return rows


def _check(classifier: Any, memory: int) -> None:
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
    classifier.partitioner_ = partitioner


def _parts(
    classifier: Any,
    source: RowSource,
    folder: Path,
    memory: int,
    jobs: int,
    advance: Callable[[int], None],
) -> Generator[Part, None, None]:
    """Partition here, or parts of the source in worker processes."""
    sources = source.split(PARTS_PER_WORKER * jobs) if jobs > 1 else [source]
    # Names of this run alone: a worker whose parent was killed finishes what it was writing, and
    # the next run may use the same folder by then.
    name = f"run-{secrets.token_hex(8)}"
    if len(sources) == 1:
        yield _partition(classifier, source, folder, name, memory, advance)
        return
    tasks = (
        delayed(_partition)(classifier, part, folder, f"{name}-{index}", memory // jobs)
        for index, part in enumerate(sources)
    )
    # Tasks of one go each, handed out as workers become free: no queue of results.
    try:
        for part in Parallel(n_jobs=jobs, return_as="generator", batch_size=1)(tasks):
            advance(part.amount)
            yield part
    finally:
        # Idle workers would keep their memory while members are trained.
        get_reusable_executor().shutdown(wait=True, kill_workers=True)


def _partition(
    classifier: Any,
    source: RowSource,
    folder: Path,
    name: str,
    memory: int,
    advance: Callable[[int], None] | None = None,
) -> Part:
    """Write the rows of a source as runs whose names begin with `name`."""
    k, kept = classifier.partitioner_.k, source.sample_files()
    writer = RunWriter(folder, name, k, memory // RUN_SHARE, kept)
    known: NDArray[Any] | None = None
    rejected, n_dropped, amount = Rejected(), 0, 0
    for chunk in source.chunks(
        memory // CHUNK_SHARE,
        allow_missing=bool(get_tags(classifier).input_tags.allow_nan),
        invalid_rows=classifier.invalid_rows,
    ):
        rejected.add(chunk.where, chunk.problems)
        amount += chunk.amount
        if len(chunk.y):
            known, dropped = _place(classifier, chunk, known, writer)
            n_dropped += dropped
        if advance is not None:
            advance(chunk.amount)
    names = ("classes_", "n_features_in_", "feature_names_in_")
    fitted = {
        name: vars(classifier)[name]
        for name in names
        if known is not None and name in vars(classifier)
    }
    return Part(writer.finish(), fitted, n_dropped, rejected, amount)


def _place(
    classifier: Any, chunk: Chunk, known: NDArray[Any] | None, writer: RunWriter
) -> tuple[NDArray[Any], int]:
    """Check and write the rows of a chunk; return the label set, and how many were dropped."""
    partitioner = classifier.partitioner_
    try:
        rows = check_training_rows(
            classifier, chunk.X, chunk.y, chunk.groups, chunk.sample_weight, classes=known
        )
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
    return rows.classes, rows.n_dropped
