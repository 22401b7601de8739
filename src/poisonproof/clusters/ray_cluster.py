"""Ray: actors of one process each, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from joblib import effective_n_jobs

from poisonproof.clusters.base import Cluster, WorkerLostError
from poisonproof.exceptions import ClusterError
from poisonproof.extras import needing

__all__ = ["RayCluster"]


class RayCluster(Cluster):
    """Workers of Ray: actors that hold one processor core each.

    Parameters
    ----------
    address : str, optional
        A running cluster: ``"auto"`` for the one this machine belongs to, ``"ray://host:10001"``
        for another. By default Ray is started here, unless this process is connected already.
    n_workers : int, optional
        How many actors; by default one for every core of the cluster.
    other_workers : {"refuse", "accept"}, default="refuse"
        As in `Cluster`.

    Examples
    --------
    >>> cluster = RayCluster("auto", n_workers=64)
    >>> # DPAClassifier(...).fit_into("model", X, y, cluster=cluster)
    """

    def __enter__(self) -> Self:
        """Connect, or start Ray here."""
        with needing("ray", "ray"):
            ray: Any = import_module("ray")
        self._ray = ray
        self._started = not ray.is_initialized()
        self._actors: dict[str, Any] = {}
        self._whose: dict[Any, str] = {}
        self._made = 0
        if self._started:
            self._connect()
        self._wanted = self.n_workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Caller)
        return self

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if self.address is None:
            cores = effective_n_jobs(self.n_workers or -1)
            quiet |= {"num_cpus": cores, "include_dashboard": False}
        try:
            self._ray.init(address=self.address or "local", **quiet)
        except (OSError, ConnectionError, ValueError) as error:
            raise ClusterError(
                f"No Ray cluster can be reached at {self.address}: {str(error)[:200]}"
            ) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the actors, and Ray if it was started here."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        self._whose.clear()
        if self._started:
            self._ray.shutdown()

    def workers(self) -> set[str]:
        """Return the names of the actors; those that were lost are replaced."""
        while len(self._actors) < self._wanted:
            self._actors[f"actor {self._made}"] = self._actor.remote()
            self._made += 1
        return set(self._actors)

    def send(self, worker: str, value: Any) -> Any:
        """Put a value where the actor of the next call fetches it, and only that actor."""
        return self._ray.put(value)

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on one actor."""
        ticket = self._actors[worker].call.remote(function, *arguments)
        self._whose[ticket] = worker
        return ticket

    def wait(self, tickets: Collection[Any], seconds: float) -> list[Any]:
        """Wait for one call to end; a lost actor ends its calls."""
        if not tickets:
            return []
        done, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        return list(done)

    def result(self, ticket: Any) -> Any:
        """Return what a call returned."""
        worker = self._whose.pop(ticket)
        errors = self._ray.exceptions
        try:
            return self._ray.get(ticket)
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError) as error:
            self._actors.pop(worker, None)
            raise WorkerLostError(worker) from error
        except errors.RayTaskError as error:
            raise error.as_instanceof_cause() from None


class _Caller:
    """What runs on a worker."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function; values that were sent are here by now."""
        return function(*arguments)
