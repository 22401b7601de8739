"""What training asks of a cluster, whichever engine runs it."""

from __future__ import annotations

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from numpy.typing import NDArray

from poisonproof.estimators.saving import TrainingSpec
from poisonproof.estimators.training_set import TrainingSet, shards_for_others
from poisonproof.exceptions import ClusterError, ClusterWarning, InvalidInputError
from poisonproof.members.member import Ensemble
from poisonproof.members.training import train_portions
from poisonproof.partition.partitioned import Shard, gathered
from poisonproof.progress import Progress, Silent, make_progress, reporting
from poisonproof.store.items import encode_members, shared_of
from poisonproof.store.manifest import Item, differences, environment_here
from poisonproof.store.training_run import TrainingRun

POLICIES = ("refuse", "accept")


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
    other_workers : {"refuse", "accept"}, default="refuse"
        What to do with workers whose software or CPU differs from this machine's. Members
        that accepted ones train are recorded in the model, and certificates then assume that such
        workers train the same members.

    Guarantee
    ---------
    Which worker trains a member, and how often it is tried, has no influence on it: members are
    those of serial training on this machine, by digest.

    Assumes
    -------
    Workers are honest: whoever runs one can hand in any member. `audit` finds that out afterwards.
    """

    def __init__(
        self,
        address: Any = None,
        *,
        n_workers: int | None = None,
        other_workers: str = "refuse",
    ) -> None:
        if other_workers not in POLICIES:
            raise InvalidInputError(
                f"other_workers is one of {', '.join(POLICIES)}. Got {other_workers!r}."
            )
        self.address = address
        self.n_workers = n_workers
        self.other_workers = other_workers

    @property
    def accepts_others(self) -> bool:
        """Whether workers that differ from this machine may train members."""
        return self.other_workers == "accept"

    def train(self, classifier: Any, rows: TrainingSet, run: TrainingRun) -> None:
        """Train the members that are missing in `run`, and put each into it.

        If no worker is left, or partitions lose worker after worker, `ClusterError` says so when
        all other members are finished. Those are in the store, and the next run goes on from there.
        """
        read = shards_for_others(classifier, rows, run.missing)
        spec, digests = TrainingSpec.of(classifier, len(rows.sizes)), classifier.partition_digests_
        bar = make_progress(classifier.verbose)
        with self, reporting(bar, len(run.missing), "Training") as progress:
            _Driver(self, spec, read, digests, run, progress).train(run.missing)

    @abstractmethod
    def __enter__(self) -> Self:
        """Connect, or start workers here."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Let go of what was started here."""

    @abstractmethod
    def workers(self) -> set[str]:
        """Return the names of the workers that are there now."""

    @abstractmethod
    def send(self, worker: str, value: Any) -> Any:
        """Bring a value to one worker and return what stands for it in `submit`.

        Like `result`, this raises `WorkerLostError` if the worker is gone.
        """

    @abstractmethod
    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on one worker, and on no other; return a ticket for the result."""

    @abstractmethod
    def wait(self, tickets: Collection[Any], seconds: float) -> list[Any]:
        """Return the tickets that are done, or whose worker is gone, after a while at most."""

    @abstractmethod
    def result(self, ticket: Any) -> Any:
        """Return what a call returned or raise what it raised."""


# What a worker does: train the members of the partitions it was sent, and encode them.

_one_at_a_time = threading.Lock()
"""Members may draw from random streams of the process, and the number of BLAS threads is its own;
so a worker process with several threads uses one of them."""


@dataclass(frozen=True)
class Trained:
    """Members as a store keeps them, what they share, how long they took, and where."""

    items: Sequence[Item]
    shared: tuple[str, dict[str, Any], dict[str, NDArray[Any]]]
    seconds: float
    surroundings: dict[str, Any]


def describe_worker() -> dict[str, Any]:
    """Return the software and the processor of this worker."""
    return environment_here()


def train_block(
    spec: TrainingSpec, shards: Mapping[int, Shard], digests: Mapping[int, str]
) -> Trained:
    """Train the members of some partitions, whose rows must have the digests given."""
    start = time.monotonic()
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
        seconds = time.monotonic() - start
        return Trained(items, shared[0], seconds, surroundings_of(spec.classifier))


def surroundings_of(classifier: Any) -> dict[str, Any]:
    """Return what of this process a learner names: versions of its own packages, its processor."""
    named = classifier._learner().specification()
    return {key: named[key] for key in ("machine", "packages") if key in named}


# Who trains what. The driver reads partitions when a worker is free for them, keeps none, and
# writes members to the store as they arrive. That only schedules: no member depends on it.
#
# A row can kill the worker that trains on it, or keep it busy for ever. Partitions that were with
# such a worker become suspects: each goes last, to a worker that has nothing else to do. So the
# others are finished whatever happens, and it is certain which partition is to blame.

SECONDS = 2.0
"""About how long a worker is busy with what it is sent at a time; so much is lost with it."""

BLOCK_BYTES = 2**25
"""Partitions sent at a time take at most this much, unless one alone is larger."""

SMALLEST_SHARE = 8
"""The smallest blocks keep a worker busy for one part in so many of that time."""

BLOCKS_AHEAD = 2
"""What a worker is given at a time: one block to train, one to go on with."""

TRIES = 3
"""How often partitions may lose their worker before they are held to be the reason."""

PATIENCE = 60.0
"""How many seconds a cluster may be without any worker."""

SLOW = 600.0
"""Seconds after which a call that has not returned is reported, and its block taken apart."""

LOOK = 1.0
"""Seconds after which lost and new workers are looked for."""


@dataclass
class _Call:
    """What a worker is to do: train a block, or (None) describe itself."""

    worker: str
    block: tuple[int, ...] | None
    since: float
    patience: float
    slow: bool = False
    given_up: bool = False


@dataclass
class _Driver:
    cluster: Cluster
    spec: TrainingSpec
    read: Callable[[int], Shard]
    digests: Sequence[str]
    run: TrainingRun
    progress: Progress
    waiting: deque[int] = field(default_factory=deque)
    calls: dict[Any, _Call] = field(default_factory=dict)
    admitted: dict[str, Any] = field(default_factory=dict)
    environments: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    losses: Counter[int] = field(default_factory=Counter)
    deadly: set[int] = field(default_factory=set)
    surroundings: dict[str, Any] = field(default_factory=dict)
    size: int = 1
    lonely_since: float | None = None

    def train(self, missing: Sequence[int]) -> None:
        self.waiting = deque(missing)
        self.surroundings = surroundings_of(self.spec.classifier)
        self.look()
        looked = time.monotonic()
        while self.waiting or any(c.block and not c.given_up for c in self.calls.values()):
            self.hand_out()
            for ticket in self.cluster.wait(self.calls, LOOK):
                self.take(ticket)
            if not self.calls or time.monotonic() - looked > LOOK:
                self.look()
                self.report_slow()
                looked = time.monotonic()
        if self.deadly:
            raise ClusterError(
                f"{_named(self.deadly)} lost {TRIES} workers each, the last ones with nothing else "
                "to do: a row kills the process that trains on it, or needs more memory than a "
                "worker has. All other members are in the store; take the row out or bound its "
                "values, and run again."
            )

    def look(self) -> None:
        """Let workers that have come describe themselves; wait for one if there is none."""
        there = self.cluster.workers()
        known = {*self.admitted, *self.refused, *(call.worker for call in self.calls.values())}
        for worker in there - known:
            self.calls[self.cluster.submit(worker, describe_worker)] = _Call(
                worker, None, time.monotonic(), SLOW
            )
        for worker in set(self.admitted) - there:
            del self.admitted[worker]
        if self.calls or self.admitted:
            self.lonely_since = None
            return
        now = time.monotonic()
        self.lonely_since = self.lonely_since or now
        if there and there <= self.refused:
            raise ClusterError(
                f"All {len(there)} workers differ from this machine in software or CPU and "
                "were refused. Install the same versions there, train on such a machine, or "
                "accept and record them: other_workers='accept'."
            )
        if now - self.lonely_since > PATIENCE:
            suspects = {i for i in self.losses if i in self.deadly or i in self.waiting}
            suspicion = f" {_named(suspects)} lost workers." if suspects else ""
            raise ClusterError(
                f"The cluster has had no worker for {PATIENCE:.0f} s.{suspicion} Finished "
                "members are in the store; run again when it has some."
            )
        time.sleep(0.1)

    def hand_out(self) -> None:
        """Give blocks to workers that have fewer than they may."""
        for worker in list(self.admitted):
            while self.waiting and self.has_room(worker, self.waiting[0]):
                if not self.send(worker, self.next_block()):
                    break

    def has_room(self, worker: str, index: int) -> bool:
        """Say whether a worker can be given a partition: of suspects, one at a time."""
        mine = [call for call in self.calls.values() if call.worker == worker]
        if any(call.slow for call in mine):
            return False
        held = [index, *(one for call in mine for one in call.block or ())]
        return len(mine) < (1 if any(self.losses[one] for one in held) else BLOCKS_AHEAD)

    def report_slow(self) -> None:
        """Say who has been busy for long, and give to others what would wait with it for ever."""
        now = time.monotonic()
        running: dict[str, _Call] = {}
        for call in self.calls.values():
            first = running.setdefault(call.worker, call)
            if first.slow and call is not first and not call.given_up:
                call.given_up = True
                self.waiting.extendleft(reversed(call.block or ()))
            if not call.block or call is not first or now - call.since < call.patience:
                continue
            call.slow, call.patience = True, 2 * call.patience
            _warn(
                f"Worker {call.worker} has been training {_named(call.block)} for "
                f"{now - call.since:.0f} s. There is no time limit; interrupting keeps what is "
                "finished, and the next run goes on from there."
            )
            if len(call.block) > 1 and not call.given_up:  # of which one may keep all waiting
                call.given_up = True
                self.suspect(call.block)

    def suspect(self, block: tuple[int, ...]) -> None:
        """Put partitions last, each alone."""
        for index in block:
            self.losses[index] += 1
            if self.losses[index] >= TRIES:
                self.deadly.add(index)
            else:
                self.waiting.append(index)

    def next_block(self) -> tuple[int, ...]:
        """Take as many partitions as keep a worker busy for a while; lost ones go alone."""
        block = [self.waiting.popleft()]
        # Towards the end blocks become smaller, so that workers finish together, but not tiny.
        share = len(self.waiting) // (2 * BLOCKS_AHEAD * max(1, len(self.admitted)))
        wanted = min(self.size, max(share, self.size // SMALLEST_SHARE))
        while self.waiting and len(block) < wanted:
            if self.losses[block[0]] or self.losses[self.waiting[0]]:
                break
            block.append(self.waiting.popleft())
        return tuple(block)

    def send(self, worker: str, block: tuple[int, ...]) -> bool:
        """Bring a block to a worker; say whether it is still there."""
        shards: dict[int, Shard] = {}
        held = 0
        for place, index in enumerate(block):
            shards[index] = self.read(index)
            held += _n_bytes(shards[index])
            if held > BLOCK_BYTES:
                self.waiting.extendleft(reversed(block[place + 1 :]))
                break
        block = tuple(shards)
        try:
            rows = self.cluster.send(worker, shards)
            digests = {index: self.digests[index] for index in block}
            spec = self.admitted[worker]
            ticket = self.cluster.submit(worker, train_block, spec, rows, digests)
        except WorkerLostError:
            self.lose(worker, block)
            return False
        self.calls[ticket] = _Call(worker, block, time.monotonic(), SLOW)
        return True

    def take(self, ticket: Any) -> None:
        """Receive what a worker returns."""
        call = self.calls.pop(ticket)
        try:
            result = self.cluster.result(ticket)
            if call.block is None:
                self.admit(call.worker, result)
                return
        except WorkerLostError:
            self.lose(call.worker, None if call.given_up else call.block)
            return
        if call.given_up:  # others train these members, with the same bits
            return
        trained: Trained = result
        if trained.surroundings != self.surroundings:
            if not self.cluster.accepts_others:
                self.waiting.extendleft(reversed(call.block))
                self.refuse(
                    call.worker,
                    f"its learner names {trained.surroundings}, here it names {self.surroundings}",
                )
                return
            known = self.environments.get(call.worker) or environment_here()
            self.environments[call.worker] = {**known, "learner": trained.surroundings}
        self.run.add_items(trained.shared, trained.items, self.environments.get(call.worker))
        self.progress.advance(len(trained.items))
        pace = len(trained.items) * SECONDS / max(trained.seconds, 1e-3)
        self.size = max(1, min(4 * self.size, int(pace)))

    def admit(self, worker: str, environment: dict[str, Any]) -> None:
        """Let a worker train, if it is like this machine or others are accepted."""
        others = differences(environment)
        if others and not self.cluster.accepts_others:
            self.refuse(worker, f"it has {'; '.join(others)}")
            return
        self.environments[worker] = environment if environment != environment_here() else None
        self.admitted[worker] = self.cluster.send(worker, self.spec)

    def refuse(self, worker: str, why: str) -> None:
        """Give a worker no more to do: members trained there could have other bits."""
        self.admitted.pop(worker, None)
        if worker not in self.refused:
            self.refused.add(worker)
            _warn(f"Worker {worker} is refused: {why}. Members trained there could differ.")

    def lose(self, worker: str, block: tuple[int, ...] | None) -> None:
        """Put what a lost worker was to do back, to be done by others."""
        self.admitted.pop(worker, None)
        if block is not None:
            self.suspect(block)
            _warn(f"Worker {worker} was lost; {len(block)} members go to others.")


def _warn(text: str) -> None:
    warnings.warn(text, ClusterWarning, stacklevel=3)


def _named(indices: Collection[int]) -> str:
    """Return partitions in words, the first few of them."""
    first = ", ".join(map(str, sorted(indices)[:10]))
    more = f" and {len(indices) - 10} more" if len(indices) > 10 else ""
    return f"Partition{'s' if len(indices) != 1 else ''} {first}{more}"


def _n_bytes(shard: Shard) -> int:
    """Return about how large rows are on their way."""
    X = shard.X
    if hasattr(X, "memory_usage"):
        return int(X.memory_usage(index=False, deep=True).sum())
    known = getattr(X, "nbytes", None) or getattr(getattr(X, "data", None), "nbytes", None)
    return int(known) if known is not None else 64 * len(shard)
