"""Dask: ``distributed``, on this machine or behind a scheduler's address."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from joblib import effective_n_jobs

from poisonproof.clusters.base import Cluster, WorkerLostError
from poisonproof.exceptions import ClusterError
from poisonproof.extras import needing

__all__ = ["DaskCluster"]

CONNECT_SECONDS = 20

QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
"""Dask looks at the stack of every worker each 10 ms, which takes a fifth of a busy core."""


class DaskCluster(Cluster):
    """Workers of Dask.

    Parameters
    ----------
    address : str or distributed.Client, optional
        The scheduler, as ``"tcp://10.0.0.1:8786"``, or a client that is connected. By default
        workers are started on this machine, one process each.
    n_workers : int, optional
        How many to start here; as `n_jobs` in joblib. All cores by default.
    other_workers : {"refuse", "accept"}, default="refuse"
        As in `Cluster`.

    Examples
    --------
    >>> cluster = DaskCluster("tcp://10.0.0.1:8786")
    >>> # DPAClassifier(...).fit_into("model", X, y, cluster=cluster)
    """

    def __enter__(self) -> Self:
        """Connect to the scheduler, or start workers here."""
        with needing("distributed", "dask"):
            distributed: Any = import_module("distributed")
        self._dask = distributed
        self._stack = ExitStack()
        if isinstance(self.address, distributed.Client):
            self._client: Any = self.address
            return self
        try:
            target = self.address or self._stack.enter_context(self._local())
            self._client = self._stack.enter_context(
                distributed.Client(target, timeout=CONNECT_SECONDS, set_as_default=False)
            )
        except (OSError, ValueError) as error:
            self._stack.close()
            raise ClusterError(
                f"No Dask scheduler can be reached at {self.address}: {str(error)[:200]}"
            ) from error
        return self

    def _local(self) -> Any:
        """Start workers on this machine."""
        with import_module("dask").config.set(QUIET):
            return self._dask.LocalCluster(
                n_workers=effective_n_jobs(self.n_workers or -1),
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # any port: another cluster may run here
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close what was opened here."""
        self._stack.close()

    def workers(self) -> set[str]:
        """Return the addresses of the workers that the scheduler knows."""
        self._there = set(self._client.scheduler_info(n_workers=-1)["workers"])
        return set(self._there)

    def send(self, worker: str, value: Any) -> Any:
        """Lay a value into the memory of one worker."""
        try:
            (future,) = self._client.scatter([value], workers=[worker], hash=False)
        except (OSError, ValueError, KeyError, TimeoutError) as error:
            if worker in self.workers():
                raise
            raise WorkerLostError(worker) from error
        return future

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on one worker."""
        future = self._client.submit(
            function,
            *arguments,
            workers=[worker],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        return _Ticket(worker, future)

    def wait(self, tickets: Collection[Any], seconds: float) -> list[Any]:
        """Wait for one call to end; calls whose worker is gone never would."""
        if not tickets:
            return []
        with self._client.as_current(), suppress(TimeoutError, CancelledError):
            self._dask.wait([t.future for t in tickets], seconds, return_when="FIRST_COMPLETED")
        return [t for t in tickets if t.future.done() or t.worker not in self._there]

    def result(self, ticket: Any) -> Any:
        """Return what a call returned."""
        future = ticket.future
        try:
            if not future.done():
                raise WorkerLostError(ticket.worker)
            return future.result(timeout=CONNECT_SECONDS)
        except (self._dask.KilledWorker, CancelledError, TimeoutError, OSError) as error:
            if isinstance(error, OSError) and ticket.worker in self.workers():
                raise
            raise WorkerLostError(ticket.worker) from error
        finally:
            future.cancel()


class _Ticket:
    """A call on one worker."""

    def __init__(self, worker: str, future: Any) -> None:
        self.worker = worker
        self.future = future
