"""What training asks of a cluster, whichever engine runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Self

from poisonproof.estimators.training_sets import TrainingSet
from poisonproof.exceptions import InvalidInputError
from poisonproof.store import TrainingRun

__all__ = ["POLICIES", "Cluster", "WorkerLostError"]

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
        What to do with workers whose software or processor differs from this machine's. Members
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
        """Train the members that are missing in `run`, and put each into it."""
        from poisonproof.clusters.scheduling import train_on

        with self:
            train_on(self, classifier, rows, run)

    @abstractmethod
    def __enter__(self) -> Self:
        """Connect, or start workers here."""

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of what was started here."""

    @abstractmethod
    def workers(self) -> set[str]:
        """Return the names of the workers that are there now."""

    @abstractmethod
    def send(self, worker: str, value: Any) -> Any:
        """Bring a value to one worker and return what stands for it in `submit`.

        Raises
        ------
        WorkerLostError
            If the worker is gone.
        """

    @abstractmethod
    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on one worker, and on no other; return a ticket for the result."""

    @abstractmethod
    def wait(self, tickets: Collection[Any], seconds: float) -> list[Any]:
        """Return the tickets that are done, or whose worker is gone, after a while at most."""

    @abstractmethod
    def result(self, ticket: Any) -> Any:
        """Return what a call returned or raise what it raised.

        Raises
        ------
        WorkerLostError
            If the worker is gone.
        """
