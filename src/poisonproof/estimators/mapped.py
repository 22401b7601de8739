"""Samples that a user's own map has replaced: each partition by itself, each test row by itself.

Such a map sees canonical values, so that neither the container of the rows nor the dtype that one
of them brings about reaches what it makes of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from poisonproof.estimators.mixing import refuse_mixing
from poisonproof.exceptions import GuaranteeError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer
from poisonproof.features.pipeline import is_own_map
from poisonproof.learners.machine_errors import is_machine_error
from poisonproof.learners.streams import give_one_worker, in_own_streams, restored_streams
from poisonproof.partition import Partition, PartitionedData, take_canonical
from poisonproof.partition.containers import as_objects, is_sparse, n_rows

__all__ = ["MappedData", "fresh_map", "map_alone", "map_partitions"]


def fresh_map(features: Any) -> Any:
    """Return an unfitted copy of a map, with one worker unless the map is the library's own."""
    copy = clone(features)
    if not is_own_map(copy):  # the library's own work row by row, on any number of threads
        give_one_worker(copy)
    return copy


@dataclass(frozen=True)
class MappedData(PartitionedData):
    """A training set in partitions, with samples as a map has made them.

    `X` holds all of them for learners that train many members at once; a partition that is asked
    for comes as the map returned it, whatever it returned for others.

    Attributes
    ----------
    parts : mapping of int to samples or Exception
        What the map made of each partition that is not empty, or what it raised there.
    """

    parts: Mapping[int, Any] = field(default_factory=dict)

    def __getitem__(self, index: int) -> Partition:
        """Return partition `index`, or raise what the map raised on it."""
        part = self.parts.get(index)
        if part is None:
            return super().__getitem__(index)
        if isinstance(part, Exception):
            raise InvalidRowsError(f"the map of samples failed: {part}") from part
        rows = self.rows(index)
        return Partition(index, part, self.y[rows], self._weights_of(rows))


def map_partitions(features: Any, data: PartitionedData, seed: int) -> PartitionedData:
    """Apply a map about which nothing is known.

    How it treats rows that it sees together, or the type they share, nobody knows, so it sees the
    rows of one partition at a time, in canonical values and order. What it raises is the matter of
    that partition's member. If it draws random numbers, they come from the partition's own streams.

    Raises
    ------
    GuaranteeError
        If it returns a sparse matrix for one partition and something else for another, or mixes the
        rows of every partition: test rows are mapped alone, and would become something else.
    """
    parts: dict[int, Any] = {}
    for index in np.flatnonzero(data.sizes).tolist():
        partition = None
        try:
            partition = data[index]
            parts[index] = _mapped(features, partition, seed)
        except Exception as error:
            unread = isinstance(error, OSError) and partition is None
            if unread or is_machine_error(error):
                raise
            parts[index] = error
    if not parts:
        return data
    back = np.empty_like(data.order)
    back[data.order] = np.arange(len(data.order))
    stacked = _joined(_filled(parts, data.sizes))
    return MappedData(
        stacked[back], data.y, data.order, data.offsets, data.sample_weight, data.digests, parts
    )


def map_alone(transform: Callable[[Any], Any], X: Any) -> Any:
    """Map canonical samples one by one, so that what is mapped together cannot meet."""
    with restored_streams():
        return _joined(
            [
                take_canonical(transform(take_canonical(X, np.array([row]))))
                for row in range(n_rows(X))
            ]
        )


def _mapped(features: Any, partition: Partition, seed: int) -> Any:
    def transform(X: Any) -> Any:
        mapped = in_own_streams(seed, partition.index, partial(features.transform, X))
        return take_canonical(mapped)

    samples = transform(partition.X)
    if n_rows(samples) != len(partition):
        raise InvalidRowsError(f"{n_rows(samples)} samples were made of {len(partition)}")
    if not isinstance(features, FrozenTransformer):  # those are tried where they predict
        refuse_mixing(features, transform, partition.X, samples)
    return samples


def _filled(parts: Mapping[int, Any], sizes: NDArray[np.intp]) -> list[Any]:
    """Return the parts in order, NaN for what failed; if all failed, the first reason is raised."""
    made = [part for part in parts.values() if not isinstance(part, Exception)]
    if not made:
        raise next(iter(parts.values()))
    missing: Any = np.full((1, *np.shape(made[0])[1:]), np.nan)
    kind = sparse.csr_array if is_sparse(made[0]) else np.asarray
    return [
        kind(np.repeat(missing, sizes[index], axis=0)) if isinstance(part, Exception) else part
        for index, part in parts.items()
    ]


def _joined(parts: Sequence[Any]) -> Any:
    """Join what a map made of each partition, so that every partition keeps its own values."""
    shapes = {np.shape(part)[1:] for part in parts}
    if len(shapes) > 1 or len({is_sparse(part) for part in parts}) > 1:
        raise GuaranteeError(
            "features returns samples of different shapes, or sparse ones for some partitions and "
            "dense ones for others, so members could not be asked alike. A map must return one "
            f"kind of samples whatever the rows hold; it returned the shapes {sorted(shapes)}."
        )
    if is_sparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    if all(isinstance(part, np.ndarray) and part.dtype == np.float64 for part in parts):
        return np.concatenate(parts)
    return np.concatenate([as_objects(part) for part in parts])
