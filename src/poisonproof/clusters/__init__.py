"""Members trained by many machines, through Dask or Ray."""

from __future__ import annotations

from poisonproof.clusters.addresses import open_cluster
from poisonproof.clusters.base import Cluster
from poisonproof.clusters.dask_cluster import DaskCluster
from poisonproof.clusters.ray_cluster import RayCluster

__all__ = ["Cluster", "DaskCluster", "RayCluster", "open_cluster"]
