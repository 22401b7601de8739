"""Training that hands over members as they finish.

Members of a `Learner` come one by one. A `BatchedLearner` trains many in one computation; it is
called for a few partitions at a time, as many as take some seconds. That only schedules: a member
does not depend on which others are trained with it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from joblib import effective_n_jobs

from poisonproof.engines.local import fit_stream
from poisonproof.learners.base import BatchedLearner, Finished, Learner
from poisonproof.learners.members import MemberList
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Progress, Silent, reporting

__all__ = ["train_portions"]

SECONDS = 5.0
"""About how long one call of a batched learner takes; so much work is lost with a process."""


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
    """Train the members of the partitions `which` and hand each over when it is finished.

    Parameters
    ----------
    learner, data, which, n_classes, seed, n_jobs, progress
        As in `poisonproof.engines.local.train`.
    finished : function of (partitions, members)
        Called in this thread, every member once.
    """
    with reporting(progress, len(which), "Training"):
        if isinstance(learner, BatchedLearner):
            _batched(learner, data, which, n_classes, seed, n_jobs, progress, finished)
            return
        stream = fit_stream(learner, data, which, n_classes, seed, n_jobs)
        for index, member in zip(which, stream, strict=True):
            finished([index], MemberList([member]))
            progress.advance()


def _batched(
    learner: BatchedLearner,
    data: PartitionedData,
    which: Sequence[int],
    n_classes: int,
    seed: int,
    n_jobs: int | None,
    progress: Progress,
    finished: Finished,
) -> None:
    start, size = 0, max(1, int(effective_n_jobs(n_jobs)))
    while start < len(which):
        portion = which[start : start + size]
        begin = time.monotonic()
        members = learner.fit_members(
            data, portion, n_classes, seed, n_jobs=n_jobs, progress=Silent()
        )
        elapsed = time.monotonic() - begin
        finished(portion, members)
        progress.advance(len(portion))
        start += len(portion)
        if elapsed < SECONDS:
            size = min(4 * size, max(size, int(size * SECONDS / max(elapsed, 1e-6))))
        elif elapsed > 2 * SECONDS:
            size = max(1, size // 2)
