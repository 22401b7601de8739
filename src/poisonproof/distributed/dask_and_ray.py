"""Clusters of Dask and Ray, on this machine or at an address, and the texts that name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from importlib import import_module
from typing import Any, Self

from joblib import effective_n_jobs

from poisonproof.distributed.cluster import Cluster, WorkerLostError
from poisonproof.exceptions import ClusterError, InvalidInputError, needing

CONNECT_SECONDS = 20

QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
"""Dask looks at the stack of every worker every 10 ms, which takes a fifth of a busy core."""


class DaskCluster(Cluster):
    """Workers of Dask.

    Parameters
    ----------
    address : str or distributed.Client, optional
        The scheduler, as ``"tcp://10.0.0.1:8786"``, or a client that is connected. By default
        workers are started on this machine, one process each.
    n_workers : int, optional
        How many to start here; as `n_jobs` in joblib. All cores by default.

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

    def __exit__(self, *error: object) -> None:
        """Close what was opened here."""
        self._stack.close()

    def workers(self) -> set[str]:
        """Return the addresses of the workers that the scheduler knows."""
        self._there = set(self._client.scheduler_info(n_workers=-1)["workers"])
        return set(self._there)

    def send(self, worker: str, value: Any) -> Any:
        """Put a value into the memory of one worker."""
        try:
            (future,) = self._client.scatter([value], workers=[worker], hash=False)
        except (OSError, ValueError, KeyError, TimeoutError) as error:
            if worker in self.workers():
                raise
            raise WorkerLostError(worker) from error
        return future

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on one worker."""
        return self._client.submit(function, *arguments, workers=[worker], pure=False, retries=0)

    def wait(self, whose: Mapping[Any, str], seconds: float) -> list[Any]:
        """Wait for one call to end; calls whose worker is gone never would."""
        if not whose:
            return []
        with self._client.as_current(), suppress(TimeoutError, CancelledError):
            self._dask.wait(list(whose), seconds, return_when="FIRST_COMPLETED")
        return [t for t, worker in whose.items() if t.done() or worker not in self._there]

    def result(self, ticket: Any, worker: str) -> Any:
        """Return what a call returned."""
        try:
            if not ticket.done():
                raise WorkerLostError(worker)
            return ticket.result(timeout=CONNECT_SECONDS)
        except (self._dask.KilledWorker, CancelledError, TimeoutError, OSError) as error:
            if isinstance(error, OSError) and worker in self.workers():
                raise
            raise WorkerLostError(worker) from error
        finally:
            ticket.cancel()


# Ray: actors of one process each, on this machine or on a cluster.


class RayCluster(Cluster):
    """Workers of Ray: actors that hold one CPU core each.

    Parameters
    ----------
    address : str, optional
        A running cluster: ``"auto"`` for the one this machine belongs to, ``"ray://host:10001"``
        for another. By default Ray is started here, unless this process is connected already.
    n_workers : int, optional
        How many actors; by default one for every core of the cluster.

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

    def __exit__(self, *error: object) -> None:
        """End the actors, and Ray if it was started here."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
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
        return self._actors[worker].call.remote(function, *arguments)

    def wait(self, whose: Mapping[Any, str], seconds: float) -> list[Any]:
        """Wait for one call to end; a lost actor ends its calls."""
        if not whose:
            return []
        done, _ = self._ray.wait(list(whose), num_returns=1, timeout=seconds)
        return list(done)

    def result(self, ticket: Any, worker: str) -> Any:
        """Return what a call returned."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(ticket)
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError) as error:
            self._actors.pop(worker, None)
            raise WorkerLostError(worker) from error
        except errors.RayTaskError as error:
            raise error.as_instanceof_cause() from None


class _Caller:
    """The actor that runs on a worker."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function; values that were sent are here by now."""
        return function(*arguments)


# The text by which a cluster is named on the command line.


def open_cluster(text: str, *, n_workers: int | None = None) -> Cluster:
    """Return the cluster that a text names.

    Parameters
    ----------
    text : str
        ``dask`` or ``ray`` start workers on this machine; ``dask://HOST:PORT`` is a scheduler of
        Dask, ``ray://HOST:PORT`` a cluster of Ray, and ``ray://auto`` the one this machine is in.
    n_workers : int, optional
        As in `DaskCluster` and `RayCluster`.

    Examples
    --------
    >>> open_cluster("dask://10.0.0.1:8786").address
    'tcp://10.0.0.1:8786'
    """
    name, separator, host = text.partition("://")
    if name == "dask" and bool(separator) == bool(host):
        address = f"tcp://{host}" if host else None
        return DaskCluster(address, n_workers=n_workers)
    if name == "ray" and bool(separator) == bool(host):
        address = {"": None, "auto": "auto"}.get(host, text)
        return RayCluster(address, n_workers=n_workers)
    raise InvalidInputError(
        f"A cluster is dask, dask://HOST:PORT, ray, ray://HOST:PORT or ray://auto. Got {text!r}."
    )
