"""A training set on disk, of which one partition at a time is in memory.

Hand-written, because pyarrow and Dask write a file per partition, in no canonical order. Here each
of thousands of partitions is a stretch of a few sorted files, with the digests of those in memory.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.rows import CheckedRows, refuse_half
from poisonproof.data.sources import DataSource
from poisonproof.estimators.checked_table import check_table
from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.estimators.grid import GridClassifier
from poisonproof.estimators.storing import store_members
from poisonproof.estimators.training_set import TrainingSet
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError, StoreError
from poisonproof.files import LOCK, LOCK_FLAGS, OpenFolder, writer_lock
from poisonproof.members.member import Finished
from poisonproof.members.training import train_portions
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import kind_of
from poisonproof.partition.partitioned import Shard, gathered
from poisonproof.partition.partitioners import ContentHash
from poisonproof.progress import make_progress, reporting
from poisonproof.store.writing import check_target


def key_type(*, weighted: bool) -> np.dtype[Any]:
    """Return what is kept about a row besides its sample."""
    fields: list[Any] = [("digest", "u1", 32), ("y", "<i8")]
    return np.dtype([*fields, ("weight", "<f8")] if weighted else fields)


@dataclass(frozen=True, eq=False)
class DiskPartitions:
    """k partitions in a folder, whose rows are there as long as it is.

    Partition i is the rows ``offsets[r, i]:offsets[r, i + 1]`` of each run r; samples have the
    given type and shape.
    """

    folder: Path
    runs: tuple[str, ...]
    offsets: NDArray[np.uint32]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    weighted: bool

    def __len__(self) -> int:
        """Return the number of partitions, k."""
        return int(self.offsets.shape[1]) - 1

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        sizes: NDArray[np.intp] = np.diff(self.offsets.astype(np.intp).sum(axis=0))
        return sizes

    @cached_property
    def row_bytes(self) -> int:
        """About how much memory a row takes."""
        written = sum(file.stat().st_size for file in self.folder.glob("run-*"))
        return max(1, written // max(1, int(self.sizes.sum())))

    def joined(self, other: DiskPartitions) -> DiskPartitions:
        """Return the rows of both, which lie in the same folder and are of the same kind."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            raise InvalidRowsError(_OTHER_SAMPLES)
        offsets = np.concatenate([self.offsets, other.offsets])
        return replace(self, runs=self.runs + other.runs, offsets=offsets)

    def shard(self, index: int) -> Shard:
        """Read one partition: one stretch of every run, in canonical order."""
        shard = self._ordered(index, self._read(index, "samples", self.dtype, self.shape))
        if not shard.is_intact():
            raise StoreError(
                f"The rows of partition {index} in {self.folder} are not those that were written "
                "there. Partition the training set again."
            )
        return shard

    def partition_digests(self) -> list[str]:
        """Return the digest of every partition; the samples are not read."""
        return [self._ordered(index).digest() for index in range(len(self))]

    def _ordered(self, index: int, X: NDArray[Any] | None = None) -> Shard:
        """Return one partition, without the samples if they are not given."""
        keys = self._read(index, "keys", key_type(weighted=self.weighted))
        X = np.empty((len(keys), 0)) if X is None else X
        weight = keys["weight"].copy() if self.weighted else None
        return Shard.build(X, keys["y"].copy(), weight, keys["digest"].copy())

    def _read(
        self, index: int, what: str, kind: np.dtype[Any], shape: tuple[int, ...] = ()
    ) -> NDArray[Any]:
        parts = [np.empty((0, *shape), kind)]
        size = int(np.prod(shape))
        for run, offsets in zip(self.runs, self.offsets, strict=True):
            start, stop = int(offsets[index]), int(offsets[index + 1])
            if stop > start:
                file, skipped = self.folder / f"{run}.{what}", start * size * kind.itemsize
                part = np.fromfile(file, kind, (stop - start) * size, offset=skipped)
                parts.append(part.reshape(-1, *shape))
        return np.concatenate(parts)

    def slabs(self, n_rows: int) -> Iterator[tuple[int, int]]:
        """Yield consecutive partitions ``first:last`` of at most `n_rows` rows, at least one."""
        ends = np.cumsum(self.sizes)
        first = 0
        while first < len(self):
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + n_rows, side="right"))
            yield first, max(first + 1, last)
            first = max(first + 1, last)


# Runs: as many rows as memory holds, sorted by partition and written to disk.
#
# A run is two files: `keys` (digest, label and weight of every row) and `samples`. The rows of one
# partition stand together in each run, so a partition is one stretch per run, and k partitions need
# neither k open files nor k buffers.


_OTHER_SAMPLES = "All rows of a training set must become samples of one type and shape."


class RunWriter:
    """Collects rows whose partitions are known, and writes a run whenever there are enough."""

    def __init__(self, folder: Path, name: str, n_partitions: int, run_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._k = n_partitions
        self._run_bytes = run_bytes
        self._runs: list[str] = []
        self._offsets: list[NDArray[np.uint32]] = []
        self._parts: list[tuple[Shard, NDArray[np.int64]]] = []
        self._held = 0
        self._first: Shard | None = None

    def add(self, rows: Shard, partitions: NDArray[np.int64]) -> None:
        """Take rows in any order, with the partition of each."""
        if self._first is None:
            self._first = rows.take(np.arange(0))
        first = self._first
        if (rows.X.dtype, rows.X.shape[1:]) != (first.X.dtype, first.X.shape[1:]):
            raise InvalidRowsError(_OTHER_SAMPLES)
        self._parts.append((rows, partitions))
        self._held += rows.X.nbytes + rows.digests.nbytes + 16 * len(rows)
        if self._held >= self._run_bytes:
            self._write()

    def finish(self) -> DiskPartitions | None:
        """Write what is left and return the training set; None if it has no rows."""
        if self._first is None:
            return None
        self._write()
        X, weighted = self._first.X, self._first.sample_weight is not None
        runs, offsets = tuple(self._runs), np.array(self._offsets)
        return DiskPartitions(self._folder, runs, offsets, X.dtype, X.shape[1:], weighted)

    def _write(self) -> None:
        if not self._parts:
            return
        partitions = np.concatenate([part for _, part in self._parts])
        counts = np.bincount(partitions, minlength=self._k)
        narrow = partitions.astype(np.uint16 if self._k <= 2**16 else np.int64)
        order = np.argsort(narrow, kind="stable")
        run = f"{self._name}-{len(self._runs)}"
        weights = [w for rows, _ in self._parts if (w := rows.sample_weight) is not None]
        keys = np.empty(len(order), dtype=key_type(weighted=bool(weights)))
        keys["digest"] = np.concatenate([rows.digests for rows, _ in self._parts])
        keys["y"] = np.concatenate([rows.y for rows, _ in self._parts])
        if weights:
            keys["weight"] = np.concatenate(weights)
        keys[order].tofile(self._folder / f"{run}.keys")
        samples = np.concatenate([rows.X for rows, _ in self._parts])
        self._parts, self._held = [], 0  # `samples` alone holds them now
        with (self._folder / f"{run}.samples").open("xb") as file:  # no link can lead elsewhere
            samples[order].tofile(file)
        self._runs.append(run)
        self._offsets.append(np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32))


# From a source to partitions on disk, in one pass and bounded memory.

MEMORY = 2**30
"""Default bound for what partitioning takes, Python and its libraries included."""

LEAST_MEMORY = 2**28
RUN_SHARE, CHUNK_SHARE = 32, 512
"""A run takes one part in 32 of the memory, twice while it is sorted; a chunk one part in 512,
many times while it is read, checked and hashed. Larger ones are not faster."""

PARTS_PER_WORKER = 8
"""Tasks per worker, so that workers finish together and the progress bar moves."""


@dataclass
class Rejected:
    """Rows that were left out because they did not fit: how many, and the first in words."""

    count: int = 0
    first: str = ""

    def add(self, count: int, first: str) -> None:
        """Count rows that were left out."""
        self.count += count
        self.first = self.first or first


@dataclass
class _Part:
    """The outcome of partitioning a part of a source."""

    rows: DiskPartitions | None = None
    n_dropped: int = 0
    rejected: Rejected = field(default_factory=Rejected)
    amount: int = 0


def partition_stream(
    classifier: Any, source: DataSource, folder: Path, *, memory: int = MEMORY
) -> DiskPartitions:
    """Read a source once and write its rows to `folder`, sorted by partition.

    Parameters
    ----------
    classifier : DPAClassifier
        Says how rows are checked, labelled and partitioned. Its `classes` are declared. It gets
        ``classes_``, ``partitioner_``, ``n_features_in_``, ``n_dropped_`` and ``rejected_``. With
        `n_jobs`, as many processes read files of a folder.
    source : DataSource
        The rows.
    folder : Path
        An empty folder; the result reads from it.
    memory : int
        Approximate limit of the bytes of memory, for all processes together.

    Returns
    -------
    DiskPartitions
        The training set, which is read one partition at a time.

    Guarantee
    ---------
    Partitions, the order of rows in them and their digests are those of `partition_data` on the
    same rows in memory. Files, row groups, chunks, processes and `memory` have no influence.
    """
    from joblib import effective_n_jobs

    _check(classifier, source, memory)
    jobs = max(1, int(effective_n_jobs(classifier.n_jobs)))
    rows: DiskPartitions | None = None
    classifier.n_dropped_, classifier.rejected_ = 0, Rejected()
    with reporting(make_progress(classifier.verbose), source.total, "Partitioning") as progress:
        parts = _parts(classifier, source, folder, memory, jobs, progress.advance)
        # Closed here: left to the garbage collector, it could stop workers of a later computation.
        with closing(parts):
            for part in parts:
                classifier.n_dropped_ += part.n_dropped
                classifier.rejected_.add(part.rejected.count, part.rejected.first)
                if part.rows is not None:
                    rows = part.rows if rows is None else rows.joined(part.rows)
    if rows is None:
        raise InvalidInputError("The source holds no training rows.")
    classifier.n_dropped_ += classifier.rejected_.count
    classifier.n_features_in_ = int(np.prod(rows.shape))
    return rows


def _check(classifier: Any, source: DataSource, memory: int) -> None:
    classifier.schema_ = classifier.schema
    if classifier.schema not in (None, source.schema):
        raise InvalidInputError(
            "The source is read by another schema than the classifier's. Give both the same one."
        )
    if classifier.declared_classes is None:
        raise GuaranteeError(
            "Streamed rows need a declared label set: classes=[...]. It cannot be collected while "
            "rows are read, and an attacker could change it."
        )
    partitioner = classifier._declared_partitioner()
    if not partitioner.rowwise:
        raise InvalidInputError(
            f"The partitioner {partitioner.name!r} looks at all rows before it places one, so rows "
            "cannot be streamed. Use 'content', 'group' or 'pixel_sum'."
        )
    if memory < LEAST_MEMORY:
        raise InvalidInputError(
            f"memory must be at least {LEAST_MEMORY:,} bytes, which Python and its libraries take. "
            f"Got {memory}."
        )
    classifier.partitioner_ = partitioner
    classifier.classes_ = np.unique(np.asarray(classifier.declared_classes))
    for name in ("n_features_in_", "n_groups_"):  # of an earlier fit
        vars(classifier).pop(name, None)


def _parts(
    classifier: Any,
    source: DataSource,
    folder: Path,
    memory: int,
    jobs: int,
    advance: Callable[[int], None],
) -> Generator[_Part, None, None]:
    """Partition here, or parts of the source in worker processes."""
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor

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
    source: DataSource,
    folder: Path,
    name: str,
    memory: int,
    advance: Callable[[int], None] | None = None,
) -> _Part:
    """Write the rows of a source as runs whose names begin with `name`."""
    from sklearn.utils import get_tags

    writer = RunWriter(folder, name, classifier.partitioner_.k, memory // RUN_SHARE)
    names = np.array(source.schema.classes)
    part = _Part()
    for rows, step in source.pieces(
        memory // CHUNK_SHARE,
        allow_missing=bool(get_tags(classifier).input_tags.allow_nan),
        invalid_rows="drop" if classifier.drops_invalid_rows else "raise",
    ):
        if rows.problems:
            part.rejected.add(len(rows.problems), rows.describe_problems())
        part.amount += step
        if len(rows):
            part.n_dropped += _place(classifier, rows, names[rows.labels], writer)
        if advance is not None:
            advance(step)
    part.rows = writer.finish()
    return part


def _place(classifier: Any, read: CheckedRows, y: Any, writer: RunWriter) -> int:
    """Check and write rows that were read, and return how many were dropped."""
    partitioner = classifier.partitioner_
    try:
        whole = replace(read, problems=())  # which are counted by themselves
        rows = check_table(classifier, whole, y, partitioner, classes=classifier.classes_)
        if len(rows.y):
            digests = sample_digests(rows.X)
            partitions = (
                partitioner.assign_digests(digests)
                if isinstance(partitioner, ContentHash)
                else partitioner.assign(rows.X, rows.groups)
            )
            writer.add(Shard(rows.X, rows.y, rows.sample_weight, digests), partitions)
    except InvalidInputError as error:
        where = f"{read.path}, from {read.unit} {read.places[0]} on (counted as row 0)"
        raise type(error)(f"{where}: {error}") from error
    return int(rows.n_dropped)


# Training on streamed rows, straight into a store.

TRAINING_SHARE = 10
"""The rows of the members that are trained together take a tenth of the memory."""


def fit_stream(
    classifier: DPAClassifier,
    path: str | os.PathLike[str],
    source: DataSource,
    *,
    memory: int = MEMORY,
    keep_data: bool = False,
    overwrite: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    cluster: Any = None,
    self_check: bool = True,
    most_may_be_invalid: bool = True,
) -> DPAClassifier:
    r"""Fit on rows that need not fit in memory, into a model directory.

    The rows are read once and written to a scratch folder, sorted by partition; then each member
    reads its own partition alone. Killed at any moment, the same call partitions again and trains
    only members that are missing.

    Parameters
    ----------
    classifier : DPAClassifier
        With declared `classes` and a partitioner that looks at one row at a time.
    path : path
        The model directory.
    source : DataSource
        The rows.
    memory : int, default=1 GiB
        Bytes that partitioning takes at most, about. Training takes what a learner needs for
        the rows it is given, of which there are at most a tenth of `memory`, and at least one
        partition.
    keep_data : bool, default=False
        Keep the training rows in the store, partition by partition, for `update`.
    overwrite : bool, default=False
        As in ``fit_into``.
    scratch : path, optional
        Folder for the sorted rows, about as large as the rows in memory would be; it is made and
        removed. By default `path` with ``.shards`` at its end.
    cluster : DaskCluster or RayCluster, optional
        Machines that train the members, from `poisonproof.distributed`; the rows are partitioned
        here.
    self_check : bool, default=True
        As in ``DPAClassifier.fit_into``.
    most_may_be_invalid : bool, default=True
        Train even if more than half of the rows do not fit and are left out.

    Returns
    -------
    DPAClassifier
        The classifier, whose members are read from the store when they predict.

    Guarantee
    ---------
    The model has the digests of one that ``classifier.fit_into`` trains on the same rows in memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from poisonproof import DPAClassifier
    >>> from poisonproof.data import DataSource, Schema
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.csv").write_text("u,kind\n" + "1,a\n2,b\n" * 100)
    >>> source = DataSource(folder / "rows.csv", Schema(label="kind", classes=("a", "b")))
    >>> classifier = DPAClassifier(n_partitions=5, classes=["a", "b"])
    >>> fit_stream(classifier, folder / "model", source).partition_sizes_.sum()
    np.int64(200)
    """
    if not isinstance(classifier, DPAClassifier) or isinstance(classifier, GridClassifier):
        raise InvalidInputError(
            f"fit_stream trains a DPAClassifier. Got {type(classifier).__name__}."
        )
    classifier._check_parameters()
    check_target(Path(path))
    with _scratch_folder(Path(scratch or f"{os.fspath(path)}.shards")) as folder:
        rows = partition_stream(classifier, source, folder, memory=memory)
        if not most_may_be_invalid:
            n_kept = int(rows.sizes.sum()) / (1 - source.schema.test_share)
            found = classifier.rejected_
            refuse_half(source.path, n_kept, found.count, found.first)
        budget = memory // TRAINING_SHARE
        index = int((rows.sizes > 0).argmax())  # a fixed map looks at the kind of a sample
        some = gathered({index: rows.shard(index)}, len(rows))
        classifier.container_ = kind_of(some.X)
        classifier.categories_ = {}
        classifier.features_ = classifier._fit_features(some)
        classifier._remember(TrainingSet(rows), rows.partition_digests())

        def _train(missing: Sequence[int], finished: Finished) -> None:
            _train_slabs(classifier, rows, missing, finished, budget)

        store_members(
            classifier,
            path,
            rows,
            _train,
            keep_data=keep_data,
            overwrite=overwrite,
            cluster=cluster,
            self_check=self_check,
        )
    if not keep_data:
        classifier.rows_ = None  # they are gone with the scratch folder
    classifier._report_failures()
    return classifier


def _train_slabs(
    classifier: Any, rows: DiskPartitions, missing: Sequence[int], finished: Finished, budget: int
) -> None:
    """Train the missing members, those of as many partitions at a time as memory holds."""
    with reporting(make_progress(classifier.verbose), len(missing), "Training") as progress:
        wanted = set(missing)
        for first, last in rows.slabs(budget // rows.row_bytes):
            which = [index for index in range(first, last) if index in wanted]
            if which:
                data = gathered({index: rows.shard(index) for index in which}, len(rows))
                task = classifier._task(data, which)
                jobs = classifier.n_jobs
                train_portions(*task, n_jobs=jobs, progress=progress, finished=finished)


@contextmanager
def _scratch_folder(folder: Path) -> Iterator[Path]:
    """Make a folder for one process and remove it, or what a killed process left of it."""
    try:
        with OpenFolder(folder, owned=True) as opened:
            names = set(opened.names())
            if not all(name == LOCK or name.startswith("run-") for name in names):
                raise StoreError(
                    f"{folder} exists and holds other files; choose another scratch folder."
                )
            with writer_lock(opened.open(LOCK, LOCK_FLAGS), folder):
                try:
                    for name in names - {LOCK}:
                        opened.remove(name)
                    yield folder
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"Cannot write to {folder}: {error.strerror or error}.") from error
