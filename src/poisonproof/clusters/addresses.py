"""The text by which a cluster is named on the command line."""

from __future__ import annotations

from poisonproof.clusters.base import Cluster
from poisonproof.clusters.dask_cluster import DaskCluster
from poisonproof.clusters.ray_cluster import RayCluster
from poisonproof.exceptions import InvalidInputError

__all__ = ["open_cluster"]


def open_cluster(
    text: str, *, n_workers: int | None = None, other_workers: str = "refuse"
) -> Cluster:
    """Return the cluster that a text names.

    Parameters
    ----------
    text : str
        ``dask`` or ``ray`` start workers on this machine; ``dask://HOST:PORT`` is a scheduler of
        Dask, ``ray://HOST:PORT`` a cluster of Ray, and ``ray://auto`` the one this machine is in.
    n_workers, other_workers
        As in `DaskCluster` and `RayCluster`.

    Examples
    --------
    >>> open_cluster("dask://10.0.0.1:8786").address
    'tcp://10.0.0.1:8786'
    """
    name, separator, host = text.partition("://")
    if name == "dask" and bool(separator) == bool(host):
        address = f"tcp://{host}" if host else None
        return DaskCluster(address, n_workers=n_workers, other_workers=other_workers)
    if name == "ray" and bool(separator) == bool(host):
        address = {"": None, "auto": "auto"}.get(host, text)
        return RayCluster(address, n_workers=n_workers, other_workers=other_workers)
    raise InvalidInputError(
        f"A cluster is dask, dask://HOST:PORT, ray, ray://HOST:PORT or ray://auto. Got {text!r}."
    )
