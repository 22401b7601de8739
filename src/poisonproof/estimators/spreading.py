"""The rows of members that share buckets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import Spread
from poisonproof.partition import PartitionedData
from poisonproof.partition.containers import as_container, take_rows

__all__ = ["spread_rows"]


def spread_rows(buckets: PartitionedData, spread: Spread) -> PartitionedData:
    """Return the rows of every member: those of its d buckets.

    Parameters
    ----------
    buckets : PartitionedData with k d partitions
        The training set in buckets.
    spread : Spread
        Which members a bucket serves.

    Returns
    -------
    PartitionedData with k d partitions
        One per member; every row occurs d times.

    Examples
    --------
    >>> from poisonproof.partition import ContentHash, partition_data
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> buckets = partition_data(X, y, ContentHash(n_partitions=4))
    >>> int(spread_rows(buckets, Spread(2, offsets=(0, 1))).sizes.sum())
    40
    """
    served: NDArray[np.int64] = spread.members_of_bucket[buckets.assignment]  # (m, d)
    rows = np.repeat(np.arange(buckets.n_rows), spread.degree)
    weight = buckets.sample_weight
    return PartitionedData.build(
        take_rows(as_container(buckets.X), rows),
        buckets.y[rows],
        served.ravel(),
        buckets.digests[rows],
        spread.n_buckets,
        sample_weight=None if weight is None else weight[rows],
    )
