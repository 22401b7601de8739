"""Members trained by many machines, through Dask or Ray."""

from __future__ import annotations

from poisonproof.distributed.cluster import Cluster
from poisonproof.distributed.dask_and_ray import DaskCluster, RayCluster, open_cluster

__all__ = [
    "Cluster",
    "DaskCluster",
    "RayCluster",
    "open_cluster",
]
