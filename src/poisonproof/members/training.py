"""Train members on this machine: one after the other, or in several worker processes.

The number of workers only schedules: every member is trained on one BLAS thread, with its own
random streams, from its own partition, whoever does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.parallel import Parallel, delayed

from poisonproof.members.member import (
    AbstainingMember,
    BatchedLearner,
    ConstantMember,
    Ensemble,
    Finished,
    Learner,
    Member,
    MemberList,
    is_machine_error,
    largest_cell,
    reason_of,
)
from poisonproof.members.streams import restored_streams
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Progress, reporting
from poisonproof.threads import one_thread

_SECONDS = 5.0
"""About how long one call of a batched learner takes; so much work is lost with a process."""

_FIRST_ROWS = 4096
"""Rows of the first call, before it is known how long one takes."""


def train(
    learner: Learner | BatchedLearner,
    data: PartitionedData,
    which: Sequence[int],
    n_classes: int,
    seed: int,
    *,
    n_jobs: int | None,
    progress: Progress,
) -> Ensemble:
    """Train the members of the partitions `which`; `n_jobs` only schedules."""
    members: list[Member] = []
    with reporting(progress, len(which), "Training"):
        if isinstance(learner, BatchedLearner):
            return learner.fit_members(
                data, which, n_classes, seed, n_jobs=n_jobs, progress=progress
            )
        for member in _fit_stream(learner, data, which, n_classes, seed, n_jobs):
            members.append(member)
            progress.advance()
    return MemberList(members)


def fit_one(
    learner: Learner, data: PartitionedData, index: int, n_classes: int, seed: int
) -> Member:
    """Train one member; degenerate partitions have members too.

    An empty partition abstains, a partition of one class votes for it, and rows that cannot be read
    or a learner that raises leave a member that abstains and keeps the reason. Errors of the
    machine and of the files that hold the partition are raised: they say nothing about its rows.
    """
    labels = data.y[data.rows(index)]
    if len(labels) == 0:
        return AbstainingMember()
    if (labels == labels[0]).all():
        return ConstantMember(int(labels[0]))
    partition = None
    try:
        # NumPy's error settings belong to the caller's thread and do not travel to workers.
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            partition = data[index]
            return learner.fit_member(partition, n_classes, seed)
    except Exception as error:
        unread = isinstance(error, OSError) and partition is None
        about = ""
        if partition is not None and isinstance(error, MemoryError):
            about = largest_cell(partition.X)
        if unread or is_machine_error(error):
            error.add_note(f"while training the member of partition {index}{about}")
            raise
        return AbstainingMember(f"{reason_of(error)}{about}")


def _fit_stream(
    learner: Learner,
    data: PartitionedData,
    which: Sequence[int],
    n_classes: int,
    seed: int,
    n_jobs: int | None,
) -> Iterator[Member]:
    """Yield the members of the partitions `which`, in this order, as they are finished."""
    workers = effective_n_jobs(n_jobs)
    if workers == 1:
        with one_thread(), restored_streams():
            yield from (fit_one(learner, data, index, n_classes, seed) for index in which)
        return
    # Processes, never threads: members may draw from global random streams. scikit-learn's own
    # `Parallel` hands its configuration (metadata routing, output containers) to the workers.
    size = max(1, min(64, len(which) // (4 * workers)))
    blocks = [which[start : start + size] for start in range(0, len(which), size)]
    finished = Parallel(n_jobs=workers, backend="loky", return_as="generator")(
        delayed(_fit_block)(learner, data, block, n_classes, seed) for block in blocks
    )
    yield from chain.from_iterable(finished)


def _fit_block(
    learner: Learner, data: PartitionedData, block: Sequence[int], n_classes: int, seed: int
) -> list[Member]:
    with one_thread(), restored_streams():
        return [fit_one(learner, data, index, n_classes, seed) for index in block]


def train_portions(
    learner: Learner | BatchedLearner,
    data: PartitionedData,
    which: Sequence[int],
    n_classes: int,
    seed: int,
    *,
    n_jobs: int | None,
    progress: Progress,
    finished: Finished,
) -> None:
    """Train the members of the partitions `which` and call `finished` with each, once.

    `progress` advances with each member. A batched learner gets as many partitions at a time as
    take some seconds, which only schedules: no member depends on those trained with it.
    """
    if not isinstance(learner, BatchedLearner):
        stream = _fit_stream(learner, data, which, n_classes, seed, n_jobs)
        for index, member in zip(which, stream, strict=True):
            finished([index], MemberList([member]))
            progress.advance()
        return
    few = int((np.cumsum(data.sizes[list(which)]) <= _FIRST_ROWS).sum())
    start, size = 0, max(1, few, int(effective_n_jobs(n_jobs)))
    while start < len(which):
        portion = which[start : start + size]
        begin = time.monotonic()
        members = learner.fit_members(
            data, portion, n_classes, seed, n_jobs=n_jobs, progress=progress
        )
        elapsed = time.monotonic() - begin
        finished(portion, members)
        start += len(portion)
        if elapsed < _SECONDS:
            size = min(4 * size, max(size, int(size * _SECONDS / max(elapsed, 1e-6))))
        elif elapsed > 2 * _SECONDS:
            size = max(1, size // 2)
