"""Training on streamed rows, straight into a store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from poisonproof.engines.portions import train_portions
from poisonproof.estimators import DPAClassifier
from poisonproof.estimators.storing import TrainingCluster, store_members
from poisonproof.estimators.surroundings import refuse_steps_in_front
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.learners.base import Finished
from poisonproof.learners.parameters import check_random_state
from poisonproof.locking import LOCK, LOCK_FLAGS, WriterLock
from poisonproof.partition import PartitionedData
from poisonproof.partition.containers import kind_of
from poisonproof.partition.shards import gathered
from poisonproof.progress import Silent, make_progress, reporting
from poisonproof.replacing import OpenFolder
from poisonproof.store.writing import check_target
from poisonproof.streaming.chunks import RowSource
from poisonproof.streaming.partitioning import MEMORY, partition_stream
from poisonproof.streaming.sharded import ShardedRows

__all__ = ["fit_stream"]

TRAINING_SHARE = 10
"""The rows of the members that are trained together take a tenth of the memory."""


def fit_stream(
    classifier: DPAClassifier,
    path: str | os.PathLike[str],
    source: RowSource,
    *,
    memory: int = MEMORY,
    keep_data: bool = False,
    overwrite: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    cluster: TrainingCluster | None = None,
    self_check: bool = True,
) -> DPAClassifier:
    """Fit on rows that need not fit in memory, into a model directory.

    The rows are read once and written to a scratch folder, sorted by partition; then each member
    reads its own partition alone. Killed at any moment, the same call partitions again and trains
    only members that are missing.

    Parameters
    ----------
    classifier : DPAClassifier
        With declared `classes` and a partitioner that looks at one row at a time.
    path : path
        The model directory.
    source : RowSource
        `DeclaredRows`, `ImageRows` or `FrameRows`.
    memory : int, default=1 GiB
        About how many bytes partitioning takes at most. Training takes what a learner needs for
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
        Machines that train the members, from `poisonproof.clusters`; the rows are partitioned here.
    self_check : bool, default=True
        As in ``DPAClassifier.fit_into``.

    Returns
    -------
    DPAClassifier
        The classifier, whose members are read from the store when they are asked.

    Guarantee
    ---------
    The model has the digests of one that ``classifier.fit_into`` trains on the same rows in memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pandas as pd
    >>> from poisonproof.datasets import Schema
    >>> from poisonproof.streaming import DeclaredRows
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> frame = pd.DataFrame({"u": range(200), "kind": ["a", "b"] * 100})
    >>> frame.to_csv(folder / "rows.csv", index=False)
    >>> source = DeclaredRows(folder / "rows.csv", Schema(label="kind", classes=("a", "b")))
    >>> classifier = DPAClassifier(n_partitions=5, classes=["a", "b"])
    >>> fit_stream(classifier, folder / "model", source).partition_sizes_.sum()
    np.int64(200)
    """
    if not isinstance(classifier, DPAClassifier):
        raise InvalidInputError(
            f"fit_stream trains a DPAClassifier. Got {type(classifier).__name__}."
        )
    refuse_steps_in_front(classifier)
    check_random_state(classifier.random_state)
    _refuse_archive(path)
    check_target(Path(path))
    with _scratch_folder(Path(scratch or f"{os.fspath(path)}.shards")) as folder:
        rows = partition_stream(classifier, source, folder, memory=memory)
        budget = memory // TRAINING_SHARE
        some = _one_partition(rows)
        classifier.container_ = kind_of(some.X)
        classifier.features_ = classifier._fit_features(some)
        classifier._remember(rows, rows.partition_digests(budget))

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
    classifier: Any, rows: ShardedRows, missing: Sequence[int], finished: Finished, budget: int
) -> None:
    """Train the missing members, those of as many partitions at a time as memory holds."""

    def _count(indices: Sequence[int], members: Any) -> None:
        finished(indices, members)
        progress.advance(len(indices))

    with reporting(make_progress(classifier.verbose), len(missing), "Training") as progress:
        asked = set(missing)
        for first, last in rows.slabs(budget // rows.row_bytes):
            which = [index for index in range(first, last) if index in asked]
            if which:
                data = gathered({index: rows.shard(index) for index in which}, len(rows))
                task = classifier._task(data, which)
                jobs = classifier.n_jobs
                train_portions(*task, n_jobs=jobs, progress=Silent(), finished=_count)


def _one_partition(rows: ShardedRows) -> PartitionedData:
    """Return the first partition that has rows: a fixed map looks at the kind of a sample."""
    index = int((rows.sizes > 0).argmax())
    return gathered({index: rows.shard(index)}, len(rows))


def _refuse_archive(path: str | os.PathLike[str]) -> None:
    if os.fspath(path).lower().endswith(".zip"):
        raise InvalidInputError(
            "A model of streamed rows is written as a directory, as its members finish. Got the "
            f"archive {path}."
        )


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
            with WriterLock(opened.open(LOCK, LOCK_FLAGS), folder):
                try:
                    for name in names - {LOCK}:
                        opened.remove(name)
                    yield folder
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"Cannot write to {folder}: {error.strerror or error}.") from error
