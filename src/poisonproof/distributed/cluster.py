"""Schedule training on a cluster and retry lost workers.

Hand-written, because one row can kill every worker that trains on it. Dask and Ray retry a lost
task among others; here suspects go last and alone, and workers with other software are refused.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from poisonproof.estimators.saving import TrainingTask
from poisonproof.estimators.training_set import shards_for_others
from poisonproof.exceptions import ClusterError, ClusterWarning
from poisonproof.members.member import Ensemble
from poisonproof.members.training import train_portions
from poisonproof.partition.partitioned import Shard, gathered
from poisonproof.progress import Progress, Silent, make_progress, reporting
from poisonproof.store.items import encode_members, shared_of
from poisonproof.store.manifest import Item, differences, environment_here
from poisonproof.store.training_run import TrainingRun


class WorkerLostError(Exception):
    """The worker of a call is gone; nothing is known about the call."""


class Cluster(ABC):
    """Workers that call functions for this process.

    Parameters
    ----------
    address : object, optional
        Where the cluster is; workers are started on this machine by default.
    n_workers : int, optional
        How many workers; all cores by default.

    Guarantee
    ---------
    Which worker trains a member, and how often it is tried, has no influence on it: members are
    those of serial training on this machine, by digest. Workers whose software or CPU differs from
    this machine's are refused.

    Assumes
    -------
    Workers are honest: whoever runs one can hand in any member. `audit` finds that out afterwards.
    """

    def __init__(self, address: Any = None, *, n_workers: int | None = None) -> None:
        self.address = address
        self.n_workers = n_workers

    def train(self, classifier: Any, data: Any, run: TrainingRun) -> None:
        """Train the members that are missing in `run`, and put each into it.

        If no worker is left, or partitions lose worker after worker, `ClusterError` says so when
        all other members are finished. Those are in the store, and the next run goes on from there.
        """
        read = shards_for_others(classifier, data, run.missing)
        spec, digests = TrainingTask.of(classifier, len(data)), classifier.partition_digests_
        bar = make_progress(classifier.verbose)
        with self, reporting(bar, len(run.missing), "Training") as progress:
            _Driver(self, spec, read, digests, run, progress).train(run.missing)

    @abstractmethod
    def __enter__(self) -> Self:
        """Connect, or start workers here."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Close what was started here."""

    @abstractmethod
    def workers(self) -> set[str]:
        """Return the names of the workers that are there now."""

    @abstractmethod
    def send(self, worker: str, value: Any) -> Any:
        """Send a value to one worker and return what stands for it in `submit`.

        Raises
        ------
        WorkerLostError
            If the worker is gone.
        """

    @abstractmethod
    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on one worker, and on no other; return a ticket for the result."""

    @abstractmethod
    def wait(self, whose: Mapping[Any, str], seconds: float) -> list[Any]:
        """Return the tickets that are done, or whose worker is gone, after a while at most."""

    @abstractmethod
    def result(self, ticket: Any, worker: str) -> Any:
        """Return what a call of a worker returned or raise what it raised.

        Raises
        ------
        WorkerLostError
            If the worker is gone.
        """


# What a worker does: train the members of the partitions it was sent, and encode them.

_one_at_a_time = threading.Lock()
"""Members may draw from random streams of the process, and the number of BLAS threads is its own;
so a worker process with several threads uses one of them."""


def describe_worker() -> dict[str, Any]:
    """Return the software and the CPU of this worker."""
    return environment_here()


def train_block(
    spec: TrainingTask, shards: Mapping[int, Shard], digests: Mapping[int, str]
) -> tuple[Any, list[Item], dict[str, Any]]:
    """Train some members; return what they share, the members as stored, and surroundings."""
    with _one_at_a_time:
        for index, shard in () if spec.mapped else shards.items():
            if not shard.is_intact() or shard.digest() != digests[index]:
                raise ClusterError(
                    f"The rows of partition {index} that reached a worker are not those of the "
                    "training set. If the arrays given to `fit_into` were changed meanwhile, fit "
                    "again."
                )
        items: list[Item] = []
        shared: list[Any] = []

        def _collect(which: Sequence[int], members: Ensemble) -> None:
            items.extend(encode_members(members, which, digests))
            shared.append(shared_of(members))

        with spec.settings():
            data = gathered(shards, spec.n_partitions)
            task = spec.classifier._task(data, sorted(shards))
            train_portions(*task, n_jobs=1, progress=Silent(), finished=_collect)
        return shared[0], items, surroundings_of(spec.classifier)


def surroundings_of(classifier: Any) -> dict[str, Any]:
    """Return what a learner names of this process: versions of its own packages, its device."""
    named = classifier._learner().specification()
    return {key: named[key] for key in ("machine", "packages") if key in named}


# Who trains what. The driver reads partitions when a worker is free for them, keeps none, and
# writes members to the store as they arrive. That only schedules: no member depends on it.
#
# A row can kill the worker that trains on it. So the partitions that a lost worker held go last,
# each alone: the others are finished whatever happens, and it is certain which one is to blame.

SHARES = 16
"""Blocks per worker; a lost worker costs one."""

TRIES = 3
"""Lost workers after which a partition is taken to be the reason."""

PATIENCE = 60.0
"""Seconds that a cluster may be without any worker."""

LOOK = 1.0
"""Seconds after which lost and new workers are looked for."""


@dataclass
class _Driver:
    cluster: Cluster
    spec: TrainingTask
    read: Callable[[int], Shard]
    digests: Sequence[str]
    run: TrainingRun
    progress: Progress
    waiting: list[int] = field(default_factory=list)
    suspects: deque[int] = field(default_factory=deque)
    # Worker and block of every call; without a block the worker is to describe itself.
    calls: dict[Any, tuple[str, list[int] | None]] = field(default_factory=dict)
    admitted: dict[str, Any] = field(default_factory=dict)  # worker to where its spec lies
    refused: set[str] = field(default_factory=set)
    losses: Counter[int] = field(default_factory=Counter)
    lonely_since: float | None = None

    def train(self, missing: Sequence[int]) -> None:
        self.waiting = list(missing)
        looked = -math.inf
        while self.waiting or self.suspects or any(block for _, block in self.calls.values()):
            if not self.calls or time.monotonic() - looked > LOOK:
                self.look()
                looked = time.monotonic()
            self.hand_out()
            whose = {ticket: worker for ticket, (worker, _) in self.calls.items()}
            for ticket in self.cluster.wait(whose, LOOK):
                self.take(ticket)
        if deadly := [index for index, lost in self.losses.items() if lost >= TRIES]:
            raise ClusterError(
                f"{_named(deadly)} lost {TRIES} workers each, the last ones while training "
                "nothing else: a row kills the process that trains on it, or takes more memory "
                "than a worker has. All other members are in the store; take the row out or bound "
                "its values, and run again."
            )

    def look(self) -> None:
        """Let workers that have come describe themselves; wait for one if there is none."""
        there = self.cluster.workers()
        busy = {worker for worker, _ in self.calls.values()}
        for worker in there - self.admitted.keys() - self.refused - busy:
            self.submit(worker, None)
        for worker in self.admitted.keys() - there:
            del self.admitted[worker]
        if self.calls or self.admitted:
            self.lonely_since = None
            return
        now = time.monotonic()
        self.lonely_since = self.lonely_since or now
        if there and there <= self.refused:
            raise ClusterError(
                f"All {len(there)} workers differ from this machine in software or CPU and "
                "were refused. Install the same versions there, or start the training on a "
                "machine like theirs."
            )
        if now - self.lonely_since > PATIENCE:
            raise ClusterError(
                f"The cluster has had no worker for {PATIENCE:.0f} s. Finished members "
                "are in the store; run again when it has some."
            )
        time.sleep(0.1)

    def hand_out(self) -> None:
        """Give a block to every worker that has nothing to do."""
        busy = {worker for worker, _ in self.calls.values()}
        for worker in self.admitted.keys() - busy:
            if not (self.waiting or self.suspects):
                return
            self.submit(worker, self.next_block())

    def next_block(self) -> list[int]:
        """Take fewer and fewer partitions, so that workers finish together; suspects go alone."""
        if not self.waiting:
            return [self.suspects.popleft()]
        size = max(1, len(self.waiting) // (SHARES * len(self.admitted)))
        block, self.waiting = self.waiting[:size], self.waiting[size:]
        return block

    def submit(self, worker: str, block: list[int] | None) -> None:
        """Send a worker what it is to do."""
        try:
            if block is None:
                ticket = self.cluster.submit(worker, describe_worker)
            else:
                rows = self.cluster.send(worker, {index: self.read(index) for index in block})
                digests = {index: self.digests[index] for index in block}
                spec = self.admitted[worker]
                ticket = self.cluster.submit(worker, train_block, spec, rows, digests)
        except WorkerLostError:
            self.lose(worker, block)
        else:
            self.calls[ticket] = worker, block

    def take(self, ticket: Any) -> None:
        """Receive what a worker returns."""
        worker, block = self.calls.pop(ticket)
        try:
            result = self.cluster.result(ticket, worker)
            if block is None:
                self.admit(worker, result)
                return
        except WorkerLostError:
            self.lose(worker, block)
            return
        shared, items, surroundings = result
        if surroundings != (here := surroundings_of(self.spec.classifier)):
            self.waiting += block
            self.refuse(worker, f"its learner names {surroundings}, here it names {here}")
            return
        self.run.add_items(shared, items)
        self.progress.advance(len(items))

    def admit(self, worker: str, environment: dict[str, Any]) -> None:
        """Let a worker train, if it is like this machine."""
        if others := differences(environment):
            self.refuse(worker, f"it has {'; '.join(others)}")
        else:
            self.admitted[worker] = self.cluster.send(worker, self.spec)

    def refuse(self, worker: str, why: str) -> None:
        """Give a worker no more to do: members trained there could have other bits."""
        self.admitted.pop(worker, None)
        self.refused.add(worker)
        _warn(f"Worker {worker} is refused: {why}. Members trained there could differ.")

    def lose(self, worker: str, block: Sequence[int] | None) -> None:
        """Let others do what a lost worker was to do."""
        self.admitted.pop(worker, None)
        if block:
            self.losses.update(block)
            self.suspects.extend(index for index in block if self.losses[index] < TRIES)
            _warn(f"Worker {worker} was lost; {len(block)} members go to others.")


def _warn(text: str) -> None:
    warnings.warn(text, ClusterWarning, stacklevel=3)


def _named(indices: Collection[int]) -> str:
    """Return partitions in words, the first few of them."""
    first = ", ".join(map(str, sorted(indices)[:10]))
    more = f" and {len(indices) - 10} more" if len(indices) > 10 else ""
    return f"Partition{'s' if len(indices) != 1 else ''} {first}{more}"
